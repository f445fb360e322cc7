"""`lockstep.breakpoint()`: the ranks of a job stop, and a prompt opens over all of them."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from types import FrameType
from typing import Iterator

import torch

from lockstep import _caller, _cells, _invitations, _prompt
from lockstep.errors import ArgumentError

_GRACE_SECONDS = 60.0
_detached = False


class _Turn:
    """Threads stop one after the other. Entering it gives whether this one may: a cell of the prompt runs on the thread
    that has stopped."""

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


def _seconds(name: str, value: float | None, default: float | None) -> float | None:
    """An argument, or the variable of the environment that stands for it."""
    text = os.environ.get(name)
    if value is None and text:
        try:
            value = float(text)
        except ValueError:
            raise ArgumentError(f"{name}={text}: it is a number of seconds") from None
    if value is not None and not value >= 0:
        raise ArgumentError(f"{name}: {value} s? It is a number of seconds, 0 or more")
    return default if value is None else value


def breakpoint(condition: bool = True, *, timeout: float | None = None, grace: float | None = None) -> None:
    """Stops this rank and serves the prompt of `lockstep attach`, until its user types `continue`.

        lockstep.breakpoint()              # on every rank; those that come later join
        lockstep.breakpoint(loss.isnan())  # only where the condition is true

    Cells of the prompt run in the frame that has called. Without a shell, the rank waits for one: `timeout` seconds at
    most, or LOCKSTEP_BREAKPOINT_TIMEOUT, and without end by default, unless its launcher ends. If the shell is killed,
    the rank goes on after `grace` seconds, or LOCKSTEP_BREAKPOINT_GRACE (60 by default), unless another one attaches.
    `detach` at the prompt makes this function do nothing for the rest of the program.

    Also as PYTHONBREAKPOINT=lockstep.breakpoint, for Python's own breakpoint(). Ranks that wait for one another in a
    collective while others are stopped do so until the group's own timeout.
    """
    if _detached:
        return
    if not condition:
        _invitations.start()  # so that a shell knows of this rank
        return
    limit = _seconds("LOCKSTEP_BREAKPOINT_TIMEOUT", timeout, None)
    patience = _seconds("LOCKSTEP_BREAKPOINT_GRACE", grace, _GRACE_SECONDS)
    assert patience is not None
    _stop_in_turn(sys._getframe(1), limit, patience)


def stop_between_steps() -> None:
    """A shell has asked the ranks to stop after this training step."""
    frame = _caller.user_frame()
    patience = _seconds("LOCKSTEP_BREAKPOINT_GRACE", None, _GRACE_SECONDS)
    assert patience is not None
    if frame is not None:
        _stop_in_turn(frame, patience, patience, is_asked=True)


def _stop_in_turn(frame: FrameType, timeout: float | None, grace: float, *, is_asked: bool = False) -> None:
    with _turn.take() as may_stop:
        if may_stop:
            stop(frame, timeout, grace, is_asked=is_asked)
        else:
            _say(_rank(), "passes breakpoint(): it is at one already, and this is a cell of its prompt")


def stop(frame: FrameType, timeout: float | None, grace: float, *, is_asked: bool = False) -> None:
    """Serves shells one after the other, in `frame`. `is_asked`: by a shell, which is there."""
    global _detached
    rank = _rank()
    frames = _cells.Frames(frame)
    place = _cells.place_of(frames.selected)
    found = _invitations.start()
    if found is None:
        _say(rank, f"passes breakpoint() at {place}: no shell can attach, since the rank has no agent (a child of a "
             "rank, another process with its number, or no private folder: `lockstep doctor` looks at that)")
        return
    try:
        with _invitations.Stopped(place, is_breakpoint=not is_asked) as stopped:
            _serve(stopped, found, rank, frames, timeout, grace, is_asked=is_asked)
    except _invitations.Detached:
        _detached = True


def _serve(stopped: _invitations.Stopped, found: tuple[str, bool], rank: int, frames: _cells.Frames,
           timeout: float | None, grace: float, *, is_asked: bool) -> None:
    """`found`: what _invitations.start() has returned."""
    global _detached
    job, is_watched = found
    place = _cells.place_of(frames.selected)
    deadline = None if timeout is None else time.monotonic() + timeout
    is_known = is_asked or is_watched  # `lockstep run` opens a prompt, or names the ranks that wait
    while True:
        invitation = stopped.wait(0.0)
        stopped.report(is_served=invitation is not None or is_asked, limit=timeout)
        if invitation is None and not is_known and not stopped.has_lost_launcher:
            _say(rank, f"waits in breakpoint() at {place}; `lockstep attach {job}` opens a prompt")
            is_known = True
        if invitation is None:
            invitation = stopped.wait(deadline)
            if invitation is not None:
                stopped.report(is_served=True)
        if invitation is None:
            why = "its launcher has ended" if stopped.has_lost_launcher else f"no shell came within {timeout:g} s"
            _say(rank, f"goes on from {place}: {why}")
            return
        try:
            prompt = _prompt.Prompt(invitation, rank, frames)
        except OSError:  # the shell is gone; one that stays asks again
            is_known, is_asked = is_watched, False
            continue
        how = prompt.run()
        is_known, is_asked = True, False
        _detached = _detached or prompt.detached
        if how == "continue":
            return
        timeout = grace
        deadline = time.monotonic() + grace
        _say(rank, f"is at {place}, and the shell is gone: goes on in {grace:g} s; `lockstep attach {job}` "
             "opens another prompt")


def _rank() -> int:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


def _say(rank: int, what: str) -> None:
    sys.stderr.write(f"lockstep: rank {rank} {what}\n")  # at once: other ranks write there, too
    sys.stderr.flush()

