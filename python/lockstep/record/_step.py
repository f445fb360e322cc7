"""Marks of training steps: `with lockstep.step(model, optimizer):`. In a job that is recorded, the mark keeps what the
step needs. In a rank that is replayed, the mark puts that back, or leaves out the body of a step that was not
recorded."""

from __future__ import annotations

import itertools
import os
import sys
from types import FrameType, TracebackType
from typing import Any

import torch

from lockstep.core import _library
from lockstep.core.errors import ArgumentError, LockstepError
from lockstep.record import _replay, _values

_numbers = itertools.count()


class _LeftOut(BaseException):
    """Ends the body of a step that is not replayed, before its first line."""


class Step:
    """A training step of the program, from `step(model, optimizer)`: a context."""

    def __init__(self, objects: tuple[Any, ...], batch: Any) -> None:
        for each in objects:
            if not isinstance(each, torch.nn.Module) and not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
                raise ArgumentError(f"step: a {type(each).__name__} has no state_dict and load_state_dict; give modules, "
                                    "optimizers, schedulers, scalers")
        self._objects = objects
        self._batch = batch
        self._traced: tuple[Any, FrameType, Any] | None = None
        self.number = -1

    def __enter__(self) -> Step:
        self.number = next(_numbers)
        if _replay.is_on():
            if not _replay.begin_step(self.number, self._objects, self._batch, sys._getframe(1)):
                self._leave_out(sys._getframe(1))
        elif "LOCKSTEP_RECORD" in os.environ:
            _record(self.number, self._objects, self._batch)
        return self

    def _leave_out(self, frame: FrameType) -> None:
        def at_first_line(*_: Any) -> None:
            raise _LeftOut

        self._traced = (sys.gettrace(), frame, frame.f_trace)
        sys.settrace(lambda *_: None)
        frame.f_trace = at_first_line

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> bool:
        if self._traced is None:
            return False
        (before, frame, of_frame), self._traced = self._traced, None
        frame.f_trace = of_frame
        sys.settrace(before)
        if kind is None:
            raise LockstepError("the body of `with lockstep.step(…):` has to begin on a line of its own: this step was not "
                                "recorded, and could not be left out")
        return kind is _LeftOut


def _record(number: int, objects: tuple[Any, ...], batch: Any) -> None:
    mode = _library.call("record_mode")["mode"] if _library.is_loaded() else "none"
    if mode != "record":
        if mode == "none" and number == 0:
            print('lockstep: this step is not recorded: no process group of this rank has the backend "lockstep", as '
                  'init_process_group("lockstep") makes it', file=sys.stderr)
        return
    rpc = sys.modules.get("torch.distributed.rpc")
    if rpc is not None and getattr(rpc, "_is_current_rpc_agent_set", lambda: False)():
        return _stop("the program uses torch.distributed.rpc, whose messages are not recorded")
    taken = _values.Taken()
    try:
        begin = {"generators": _values.take_generators(taken), "threads": torch.get_num_threads(),
                 "batch": _values.encode(batch, taken, "batch")}
        arguments: dict[str, Any] = {"begin": {"values": taken.text(begin), "tensors": list(range(len(taken.tensors)))}}
        answer = _library.call("record_step", taken.tensors, step=number, **arguments)
        if answer.get("wants_state"):
            state = _values.Taken()
            values = _values.take_state(objects, state)
            first = len(taken.tensors)
            arguments["state"] = {"values": state.text(values), "tensors": list(range(first, first + len(state.tensors)))}
            _library.call("record_step", [*taken.tensors, *state.tensors], step=number, **arguments)
    except ArgumentError as error:  # a value that is not kept: the program goes on without a recording
        _stop(str(error))


def _stop(reason: str) -> None:
    _library.call("record_stop", reason=reason)
