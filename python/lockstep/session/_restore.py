"""Copies a training run from one rank to others after a rank was lost and started again: `%restart 2 --from 0`.
ddp/restore.h does this for cells in C++."""

from __future__ import annotations

import hashlib
import io
import sys
from typing import Any, Callable, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from lockstep.session import _state, _wrappers
from lockstep.subject import _describe

_Key = tuple[str, str]  # kind, name


class _Report:
    """What was copied, and what is lost. The same on all ranks."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.restored: list[str] = []
        self.lost: list[str] = []

    def __repr__(self) -> str:
        return "\n".join([self.title, *(f"  {each}" for each in self.restored), *(f"  lost: {each}" for each in self.lost)])


def run(source: int | None, to: list[int]) -> _Report | None:
    """Copies the state of modules, optimizers, schedulers, tensors and generators among the names of the cells from
    rank `source`. Where that is None, only brings wrappers in step. Collective over all ranks."""
    names = sys.modules["__main__"].__dict__
    me, size = dist.get_rank(), dist.get_world_size()
    wrappers, again = align_wrappers(names, to, source)
    report = _Report("wrappers:" if source is None else f"from rank {source} to {_state.words(to)}:")
    if source is None:
        report.lost = _lines_of(again)
        return report if again else None
    if not 0 <= source < size or any(not 0 <= each < size or each == source for each in to):
        raise ValueError(f"from rank {source} to {to}: ranks are 0 to {size - 1}, and none takes from itself")
    mine = _holders(names)
    all_of_them = _state.gather({key: holder.describe() for key, holder in mine.items()})
    lost_parameters: set[str] = set()
    for key in sorted({key for each in all_of_them for key in each}):
        kind, name = key
        if not all(key in each for each in all_of_them):
            report.lost.append(f"{name}: not all ranks have it")
            continue
        theirs = [each[key] for each in all_of_them]
        if problem := _problem(theirs, source, lost_parameters):
            report.lost.append(f"{name}: {problem}")
            if kind == _MODULE:
                lost_parameters.update(name for each in theirs for name in each["parameters"])
            continue
        lost = _lost_parts(theirs, to)
        if kind == _MODULE:
            lost_parameters.update(f"{name}.{each}" for each in lost)
        parts = [each for each in theirs[source]["parts"] if each not in lost]
        if lost:
            which = f"{name}: {', '.join(lost[:4])}{f' and {len(lost) - 4} more' if len(lost) > 4 else ''}" if parts else name
            report.lost.append(f"{which}: the other ranks do not agree on it, so rank {source}'s is not what was lost")
        if not parts:
            continue
        failed = _copy(mine[key], parts, source, to, me)
        (report.lost if failed else report.restored).append(
            f"{name}: {failed or (f'{len(parts)} tensors' if kind == _MODULE else theirs[source]['what'])}")
    report.restored += wrappers
    report.lost += _lines_of(again)
    return report


def _lines_of(again: dict[str, str]) -> list[str]:
    return [f"{name}: {problem}; make it again" for name, problem in again.items()]


def _problem(theirs: list[dict[str, Any]], source: int, lost_parameters: set[str]) -> str:
    """Why nothing of an object can be copied."""
    if any("error" in each for each in theirs):
        return str(next(each["error"] for each in theirs if "error" in each))
    if any(each["shape"] != theirs[source]["shape"] for each in theirs):
        return "it is not made alike on all ranks"
    if lost := [each for each in theirs[source]["parameters"] if each in lost_parameters]:
        return f"{len(lost)} of its parameters are lost, so its state is none for them"
    return ""


def _lost_parts(theirs: list[dict[str, Any]], to: list[int]) -> list[str]:
    """The parts on which the other ranks do not agree. Those that each forward takes from rank 0 are not lost while
    rank 0 lives."""
    others = [each for rank, each in enumerate(theirs) if rank not in to]
    return [part for part in others[0]["parts"]
            if any(each["parts"][part] != others[0]["parts"][part] for each in others)
            and (0 in to or part not in others[0]["synchronised"])]


def _copy(holder: _Holder, parts: list[str], source: int, to: list[int], me: int) -> str | None:
    """Copies the parts. Returns why they could not be read on rank `source`, or why a rank could not take them. The
    same on all ranks."""
    payload: list[Any] = [None, None]  # the state, or why there is none
    if me == source:
        try:
            payload[0] = holder.save(parts)
        except Exception as error:  # of a class of the user's
            payload[1] = f"rank {me} can't save it: {type(error).__name__}: {error}"
    dist.broadcast_object_list(payload, src=source)
    state, failure = payload
    if failure:
        return str(failure)
    if me in to:
        try:
            holder.load(state)
        except Exception as error:  # of a class of the user's
            failure = f"rank {me} can't load it: {type(error).__name__}: {error}"
    return next((each for each in _state.gather(failure) if each), None)


# ---- What holds state ------------------------------------------------------------------------------------------------

_MODULE, _OPTIMIZER, _TENSOR, _STATE, _GENERATORS = "1 module", "2 optimizer", "3 tensor", "4 state", "5 generators"


class _Holder:
    """An object with a name: its form, and the functions that read and set its state."""

    def __init__(self, what: str, shape: Callable[[], Any], read: Callable[[], Any], write: Callable[[Any], object]) -> None:
        self._what, self._shape, self._read, self._write = what, shape, read, write
        self.has_parts = False  # the state is a dictionary, of which a part may be copied
        self.synchronised: list[str] = []  # parts that each forward takes from rank 0
        self.parameters: list[str] = []  # names of those that a module has, or an optimizer steps

    def describe(self) -> dict[str, Any]:
        description: dict[str, Any] = {"what": self._what, "synchronised": self.synchronised, "parameters": self.parameters}
        try:
            description["shape"] = self._shape()
            state = self._read()
            description["parts"] = {part: _digest(each) for part, each in (state if self.has_parts else {"": state}).items()}
        except Exception as error:  # of a class of the user's
            description["error"] = f"its state can't be read: {type(error).__name__}: {error}"
        return description

    def save(self, parts: list[str]) -> bytes:
        state = self._read()
        buffer = io.BytesIO()
        torch.save({part: state[part] for part in parts} if self.has_parts else state, buffer)
        return buffer.getvalue()

    def load(self, state: bytes) -> None:
        self._write(torch.load(io.BytesIO(state), map_location="cpu", weights_only=False))


def _digest(state: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest, state)
    return digest.hexdigest()


def _feed(digest: Any, state: Any) -> None:
    """Feeds all of `state` to the digest, bit by bit. Raises TypeError for types that it does not know."""
    if isinstance(state, torch.Tensor):
        digest.update(f"{state.dtype} {tuple(state.shape)}".encode())
        flat = state.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    elif isinstance(state, dict):
        digest.update(f"{len(state)}{{".encode())
        for key in state:
            _feed(digest, key)
            _feed(digest, state[key])
    elif isinstance(state, (list, tuple)):
        digest.update(f"{len(state)}[".encode())
        for each in state:
            _feed(digest, each)
    elif isinstance(state, (str, int, float, complex, bool, bytes, type(None), torch.dtype, torch.device)):
        digest.update(f"{type(state).__name__} {state!r};".encode())
    elif type(state).__module__ == "numpy" and hasattr(state, "tobytes"):
        if state.dtype.hasobject:  # its bytes are addresses
            raise TypeError(f"NumPy values of type {state.dtype} can't be compared")
        digest.update(f"{state.dtype} {state.shape}".encode())
        digest.update(state.tobytes())
    else:
        raise TypeError(f"{type(state).__name__} has no state that is known")


def _holders(names: dict[str, Any]) -> dict[_Key, _Holder]:
    found: dict[_Key, _Holder] = {}
    parameters = _state.parameters(names)
    synchronised: set[int] = set()
    for _, value in _state.values(names):
        if (wrapper := _describe.wrapper_of(value)) is not None and wrapper.broadcast_buffers:
            synchronised.update(map(id, value.buffers()))
    for name, value in _state.values(names):
        if isinstance(value, type):
            continue
        if isinstance(value, torch.nn.Module):
            found[_MODULE, name] = _module(name, value, synchronised)
        elif isinstance(value, torch.optim.Optimizer):
            found[_OPTIMIZER, name] = _optimizer(value, parameters)
        elif isinstance(value, torch.Tensor):
            if id(value) not in parameters:
                found[_TENSOR, name] = _tensor(value)
        elif isinstance(value, torch.Generator):
            found[_STATE, name] = _generator(value)
        elif _state.has_state_dict(value):
            found[_STATE, name] = _object(value)
    found[_GENERATORS, "generators"] = _Holder("of torch, random and NumPy", torch.cuda.is_initialized,
                                               _state.read_generators, _state.write_generators)
    return found


def _module(name: str, module: torch.nn.Module, synchronised: set[int]) -> _Holder:
    holder = _Holder("", lambda: {key: _state.form_of(each) for key, each in module.state_dict().items()},
                     module.state_dict, lambda state: module.load_state_dict(state, strict=False))
    holder.has_parts = True
    holder.parameters = [f"{name}.{key}" for key, _ in module.named_parameters()]
    holder.synchronised = [key for key, buffer in module.named_buffers() if id(buffer) in synchronised]
    return holder


def _optimizer(optimizer: torch.optim.Optimizer, parameters: dict[int, str]) -> _Holder:
    def shape() -> list[Any]:
        groups = [[[*_state.form_of(each), parameters.get(id(each), "")] for each in group["params"]]
                  for group in optimizer.param_groups]
        return [type(optimizer).__name__, groups]

    def load(state: dict[str, Any]) -> None:
        optimizer.load_state_dict(state)
        _state.keep_types(optimizer, state)

    holder = _Holder("state and options", shape, optimizer.state_dict, load)
    holder.parameters = [parameters.get(id(each), "") for group in optimizer.param_groups for each in group["params"]]
    return holder


def _tensor(tensor: torch.Tensor) -> _Holder:
    return _Holder("tensor", lambda: _state.form_of(tensor), lambda: tensor, lambda saved: tensor.data.copy_(saved))


def _generator(generator: torch.Generator) -> _Holder:
    return _Holder("generator", lambda: [str(generator.device)], generator.get_state, generator.set_state)


def _object(value: Any) -> _Holder:
    return _Holder("state", lambda: [type(value).__name__], value.state_dict, value.load_state_dict)


# ---- Wrappers --------------------------------------------------------------------------------------------------------


def align_wrappers(names: dict[str, Any], to: list[int], source: int | None) -> tuple[list[str], dict[str, str]]:
    """Gives wrappers of a rank that was started again the layout of the other ranks, which DistributedDataParallel has
    laid out anew after the first step: the order of sums depends on it. All ranks begin to count steps again. Returns
    lines about wrappers that are in step, and, by name, why others have to be made again. The same on all ranks."""
    mine = {name: wrapper for name, each in _state.values(names) if (wrapper := _describe.wrapper_of(each)) is not None}
    world = distributed_c10d._world
    gathered = _state.gather((world.group_count, {name: _layout(each) for name, each in mine.items()}))
    world.group_count = max(count for count, _ in gathered)  # the next group has the same number everywhere
    origin = source if source is not None else next((rank for rank in range(len(gathered)) if rank not in to), 0)
    by_wrapper: dict[tuple[int, ...], list[str]] = {}  # the names of the wrapper that each rank has
    for name in sorted(name for name in mine if all(name in each for _, each in gathered)):
        by_wrapper.setdefault(tuple(each[name].wrapper for _, each in gathered), []).append(name)
    problems = _state.gather([_align(mine[name], [each[name] for _, each in gathered], origin)
                              for name, *_ in by_wrapper.values()])
    lines: list[str] = []
    again: dict[str, str] = {}
    for those, found in zip(by_wrapper.values(), zip(*problems)):
        if problem := next(filter(None, found), ""):
            again.update(dict.fromkeys(those, problem))
        else:
            lines.append(f"{those[0]}: layout of the buckets")
    return lines, again


class _Layout(NamedTuple):
    """What a rank knows of the layout of a wrapper."""

    wrapper: int  # its id
    problem: str = ""
    layout: list[list[int]] | None = None
    reduced: int = 0  # how many parameters a reducer that is made now has
    is_old: bool = False  # the reducer has others


def _layout(wrapper: Any) -> _Layout:
    problem = _wrappers.failures.get(id(wrapper), "")
    try:
        reduced, in_reducer = _wrappers.counts_of(wrapper)
        return _Layout(id(wrapper), problem, _wrappers.layout_of(wrapper), reduced, reduced != in_reducer)
    except Exception as error:  # the others wait
        return _Layout(id(wrapper), f"{type(error).__name__}: {error}")


def _align(wrapper: Any, of_ranks: list[_Layout], origin: int) -> str:
    """Gives the wrapper the layout of rank `origin`. Returns why it can't have it."""
    layout, mine = of_ranks[origin].layout, of_ranks[dist.get_rank()]
    if problem := next((each.problem for each in of_ranks if each.problem), ""):
        return problem
    if layout is None:
        return _wrappers.UNKNOWN
    if any(each.reduced != mine.reduced for each in of_ranks):
        return "ranks reduce the gradients of different parameters"
    try:
        if layout != mine.layout or any(each.is_old for each in of_ranks):
            _wrappers.lay_out(wrapper, layout)
        _wrappers.begin_again(wrapper)
    except Exception as error:  # the others wait
        return f"{type(error).__name__}: {error}"
    return ""
