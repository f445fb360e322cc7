"""A rank that runs again alone, as `lockstep replay` starts it: the process groups give what the rank has received
(collectives/replay/player.h), and steps begin with what was recorded."""

from __future__ import annotations

import atexit
import os
import sys
from types import FrameType
from typing import Any, Iterator

import torch

from lockstep.core import _library
from lockstep.core.errors import LockstepError
from lockstep.record import _values

_about: dict[str, Any] = {}
_is_at_until = False


def is_on() -> bool:
    return "LOCKSTEP_REPLAY" in os.environ


def _say(text: str) -> None:
    sys.stdout.flush()
    print(f"lockstep: {text}", file=sys.stderr, flush=True)


def start() -> None:
    """Begins the replay in a process that `lockstep replay` has started: from here on it needs no other ranks. Raises
    LockstepError for a recording that can't be read."""
    if not is_on():
        return
    rank, replayed = os.environ.get("RANK"), os.environ["LOCKSTEP_REPLAY_RANK"]
    if rank != replayed:
        raise LockstepError(f"this process is rank {rank}, and lockstep replay runs rank {replayed} alone: give it the script "
                            "without a launcher: -- python train.py")
    from torch.distributed import distributed_c10d

    _about.update(_library.call("record_mode")["about"])
    here = _about["here"]
    for key, what in (("torch", "torch"), ("cpu", "the instruction set"), ("python", "Python"), ("lockstep", "lockstep")):
        if here[key] != _about[key] and here[key] and _about[key]:
            _say(f"{what} is {here[key]} here, and was {_about[key]} when this was recorded: results may differ")

    distributed: Any = torch.distributed

    def rendezvous(*_: Any, **__: Any) -> Iterator[tuple[Any, int, int]]:
        yield distributed.HashStore(), int(os.environ["LOCKSTEP_REPLAY_RANK"]), int(_about["world_size"])

    module: Any = distributed_c10d
    module.rendezvous = rendezvous
    if os.environ.get("LOCKSTEP_REPLAY_PDB"):
        _debug_exceptions()
    atexit.register(_conclude, os.getpid())


def _debug_exceptions() -> None:
    import bdb
    import pdb

    before = sys.excepthook

    def hook(kind: Any, error: BaseException, where: Any) -> None:
        if issubclass(kind, (bdb.BdbQuit, KeyboardInterrupt)):  # of a person who has seen enough
            return
        before(kind, error, where)
        pdb.post_mortem(where)

    sys.excepthook = hook


def _conclude(process: int) -> None:
    if os.getpid() == process:
        _say(_library.call("replay_conclusion", at_until=_is_at_until)["text"])


def begin_step(number: int, objects: tuple[Any, ...], batch: Any, frame: FrameType) -> bool:
    """Returns whether the step's body runs. Raises SystemExit where the replay ends."""
    global _is_at_until
    until = os.environ.get("LOCKSTEP_REPLAY_UNTIL")
    is_last = until is not None and number == int(until)
    _is_at_until = is_last
    if is_last and not os.environ.get("LOCKSTEP_REPLAY_PDB"):
        raise SystemExit(0)
    begun = _library.call("replay_step", step=number)
    if begun["then"] == "end":
        raise SystemExit(0)
    if begun["then"] == "skip":
        return False
    if begun["state"] is not None:
        _state(number, objects, begun["state"], sets=begun["then"] == "set_state")
    _begin(number, batch, begun["begin"], sets=begun["then"] == "set_state")
    if is_last:
        import pdb

        pdb.Pdb().set_trace(frame)
    return True


def _filled(what: str, number: int, text: str) -> tuple[list[torch.Tensor], Any]:
    tensors, values = _values.tensors_and_values(text)
    _library.call("replay_fill", tensors, what=what, step=number)
    return tensors, values


def _state(number: int, objects: tuple[Any, ...], text: str, sets: bool) -> None:
    if sets:
        tensors, values = _filled("state", number, text)
        _values.set_state(objects, values, tensors.__getitem__)
        return
    taken = _values.Taken()
    _values.take_state(objects, taken)
    _library.call("replay_compare", taken.tensors, what="state", step=number, departs=True,
                  names=[*taken.names, "the number of tensors of the state"])


def _begin(number: int, batch: Any, text: str, sets: bool) -> None:
    tensors, values = _filled("step", number, text)
    taken = _values.Taken()
    _values.take_generators(taken)
    recorded = _values.decode(values["generators"], tensors.__getitem__)
    same = all(torch.equal(each, tensors[index]) for index, each in enumerate(taken.tensors) if index < len(tensors))
    if not same and not sets and number > 0:  # before the first step a program may not have seeded all of them
        _say(f"step {number} begins with other states of random generators than the recorded ones, which are put in their "
             "place")
    _values.set_generators(recorded)
    if values["batch"] is not None:
        _set_batch(number, batch, tensors)
    _check_threads(values["threads"])


def _set_batch(number: int, batch: Any, tensors: list[torch.Tensor]) -> None:
    """The last of the recorded tensors are those of the batch."""
    taken = _values.Taken()
    _values.encode(batch, taken, "batch")
    recorded = tensors[len(tensors) - len(taken.tensors):]
    for name, mine, theirs in zip(taken.names, taken.tensors, recorded):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            raise LockstepError(f"step {number}: {name} is {mine.dtype} of shape {list(mine.shape)}, and {theirs.dtype} of "
                                f"shape {list(theirs.shape)} was recorded")
        with torch.no_grad():
            mine.copy_(theirs)


def _check_threads(recorded: int) -> None:
    here = torch.get_num_threads()
    if here == recorded or _about.get("said_threads"):
        return
    _about["said_threads"] = True
    _say(f"torch has {here} threads here, and had {recorded} when this was recorded: sums may differ")
