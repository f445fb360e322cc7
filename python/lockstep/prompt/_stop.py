"""A rank that has stopped: it serves shells one after the other, until one of them lets it go on."""

from __future__ import annotations

import time
from types import FrameType

from lockstep.core import _group
from lockstep.prompt import _capture, _frames, _invitations
from lockstep.prompt._prompt import Prompt

_said_without_agent = False


def stop(frame: FrameType, timeout: float | None, grace: float | None, *, is_asked: bool = False) -> bool:
    """Stops in `frame`, for `timeout` seconds without a shell, and `grace` seconds after one is lost; None: no limit.
    `is_asked`: by a shell, which is there. Returns whether later breakpoints are to be passed over."""
    global _said_without_agent
    rank = _group.rank()
    frames = _frames.Frames(frame)
    place = _frames.place_of(frames.selected)
    found = _invitations.start()
    if found is None:
        if not _said_without_agent:  # once: the worker of a data loader comes here for each sample
            _say(rank, f"passes breakpoint() at {place}: no shell can attach, since the rank has no agent (a child of "
                 "a rank, another process with its number, or no private folder: `lockstep doctor` looks at that)")
        _said_without_agent = True
        return False
    try:
        with _invitations.Stopped(place, is_breakpoint=not is_asked) as stopped:
            return _serve(stopped, found, rank, frames, timeout, grace, is_asked=is_asked)
    except _invitations.Detached:
        return True
    finally:
        frames.release()


def say_nested() -> None:
    _say(_group.rank(), "passes breakpoint(): it is at one already, and this is a cell of its prompt")


def _serve(stopped: _invitations.Stopped, found: tuple[str, bool], rank: int, frames: _frames.Frames,
           timeout: float | None, grace: float | None, *, is_asked: bool) -> bool:
    """`found`: what _invitations.start() has returned. Returns whether a shell has detached."""
    job, is_watched = found
    place = _frames.place_of(frames.selected)
    deadline = None if timeout is None else time.monotonic() + timeout
    is_known = is_asked or is_watched  # `lockstep run` opens a prompt, or names the ranks that wait
    detached = False
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
            return detached
        try:
            prompt = Prompt(invitation, rank, frames)
        except OSError as error:  # the shell is gone; one that stays asks again
            if not isinstance(error, (ConnectionError, FileNotFoundError, TimeoutError)):
                _say(rank, f"can't serve the prompt of a shell: {error}")
            is_known, is_asked = is_watched, False
            continue
        how = prompt.run()
        is_known, is_asked = True, False
        detached = detached or prompt.detached
        if how in ("continue", "forked"):
            return detached
        timeout = grace
        deadline = None if grace is None else time.monotonic() + grace
        what = "waits" if grace is None else f"goes on in {grace:g} s"
        _say(rank, f"is at {place}, and the shell is gone: {what}; `lockstep attach {job}` opens another prompt")


def _say(rank: int, what: str) -> None:
    _capture.write_error(f"lockstep: rank {rank} {what}\n")  # at once: other ranks write there, too
