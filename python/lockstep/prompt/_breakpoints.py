"""`lockstep.breakpoint()`: the ranks of a job stop, and a prompt opens over all of them. The first prompt loads the
modules that prompts need."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from types import FrameType
from typing import Any, Iterator

from lockstep.core import _caller
from lockstep.core.errors import ArgumentError
from lockstep.prompt import _invitations
from lockstep.watches import _watches

_GRACE_SECONDS = 60.0
_detached = False


class _Turn:
    """Lets threads stop one after the other. take() gives whether this one may stop: a cell of the prompt runs on the
    thread that has stopped."""

    def __init__(self) -> None:
        self.reset()
        os.register_at_fork(after_in_child=self.reset)  # the thread that holds it is not in the child

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None

    @contextlib.contextmanager
    def take(self) -> Iterator[bool]:
        if self._thread == threading.get_ident():
            yield False
            return
        lock = self._lock
        with lock:
            self._thread = threading.get_ident()
            try:
                yield True
            finally:
                self._thread = None


_turn = _Turn()


def _seconds(argument: str, value: float | None, variable: str, default: float | None) -> float | None:
    """An argument, or the variable of the environment that stands for it. None, and infinity: no limit."""
    text = os.environ.get(variable)
    name = argument
    if value is None and text:
        name, value = variable, text  # type: ignore[assignment]
    if value is None:
        return default
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name}: {value!r}? It is a number of seconds") from None
    if not value >= 0:
        raise ArgumentError(f"{name}: {value} s? It is a number of seconds, 0 or more")
    return None if math.isinf(value) else value


def _grace(value: float | None) -> float | None:
    return _seconds("grace", value, "LOCKSTEP_BREAKPOINT_GRACE", _GRACE_SECONDS)


def breakpoint(condition: Any = True, *, timeout: float | None = None, grace: float | None = None) -> None:
    """Stops this rank and serves the prompt of `lockstep attach`, until its user types `continue`. Local: ranks that
    do not call it go on, up to a collective in which they wait for this one until the group's own timeout.

        lockstep.breakpoint()              # on every rank; those that come later join
        lockstep.breakpoint(loss.isnan())  # only where the condition is true

    `condition`: anything that has a truth value, such as a tensor of one element.
    `timeout`: seconds to wait for a shell, or LOCKSTEP_BREAKPOINT_TIMEOUT; without end by default, unless the launcher
    of the rank ends.
    `grace`: seconds after which the rank goes on if the shell is killed and no other one attaches, or
    LOCKSTEP_BREAKPOINT_GRACE; 60 by default.

    Cells of the prompt run in the frame that has called. `detach` at the prompt makes this function do nothing for the
    rest of the program. Also as PYTHONBREAKPOINT=lockstep.breakpoint, for Python's own breakpoint().

    Raises ArgumentError for a time that is no number of seconds. Where no shell can attach (the worker of a data
    loader, a rank without a private folder), it says so once on the standard error and returns.
    """
    if _detached:
        return
    if not condition:
        _invitations.start()  # so that a shell knows of this rank
        return
    limit = _seconds("timeout", timeout, "LOCKSTEP_BREAKPOINT_TIMEOUT", None)
    patience = _grace(grace)
    try:
        frame = sys._getframe(1)
    except ValueError:  # called by C: at exit, by a hook of autograd
        frame = sys._getframe()
    _stop_in_turn(frame, limit, patience)


def stop_between_steps() -> None:
    """Stops this rank, since a shell has asked the ranks to stop after this training step."""
    frame = _caller.user_frame()
    try:
        patience = _grace(None)
    except ArgumentError:  # breakpoint() raises it; an optimizer's step is not the place
        patience = _GRACE_SECONDS
    if frame is not None:
        _stop_in_turn(frame, patience, patience, is_asked=True)


def _stop_in_turn(frame: FrameType, timeout: float | None, grace: float | None, *, is_asked: bool = False) -> None:
    global _detached
    from lockstep.prompt import _stop

    with _turn.take() as may_stop:
        if not may_stop:
            _stop.say_nested()
        elif _stop.stop(frame, timeout, grace, is_asked=is_asked):
            _detached = True


_watches.stop_between_steps = stop_between_steps
