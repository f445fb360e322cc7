"""Shells that ask this rank to serve their prompt (python/operators/invitations.h)."""

from __future__ import annotations

import dataclasses
import os
import select
import time

from lockstep.agent import _agent
from lockstep.core import _group, _library

_event: int | None = None
_launcher = 0  # the process that has started this one
_LONGEST_POLL_SECONDS = 1e6  # the longest one that poll() takes is 2e6


def _note_launcher() -> None:
    global _launcher
    _launcher = os.getppid()


_note_launcher()
os.register_at_fork(after_in_child=_note_launcher)


def start() -> tuple[str, bool] | None:
    """Lets shells find this rank. Returns the name of the job, and whether `lockstep run` watches it; None if no shell
    can attach."""
    global _event
    if _event is None:
        _agent.start()
        _event = int(_library.call("expect_invitations")["event"])
    answer = _library.call("agent_folder")
    folder = str(answer["folder"])
    return (os.path.basename(folder).removeprefix("job-"), bool(answer["is_watched"])) if folder else None


@dataclasses.dataclass(frozen=True)
class Invitation:
    """How a shell is reached."""

    hub: str  # the path of its socket
    identity: str


class Detached(Exception):
    """A shell lets the job go on without breakpoints."""


class Stopped:
    """While it lives, this rank is stopped at `place`. `is_breakpoint`: wait() raises Detached."""

    def __init__(self, place: str, *, is_breakpoint: bool) -> None:
        self._place = place
        self._is_breakpoint = is_breakpoint
        self._launcher_end: int | None = None  # a pidfd
        self.has_lost_launcher = False  # nobody is left who would end the rank

    def __enter__(self) -> Stopped:
        _library.call("set_stopped", place=self._place)
        if _group.has_launcher():
            try:
                self._launcher_end = os.pidfd_open(_launcher)
            except OSError:  # it has ended, or is the parent of another namespace's first process
                pass
            self.has_lost_launcher = os.getppid() != _launcher
        return self

    def __exit__(self, *_: object) -> None:
        if self._launcher_end is not None:
            os.close(self._launcher_end)
        _library.call("set_stopped", place=None)

    def report(self, *, is_served: bool, limit: float | None = None) -> None:
        """For shells that watch: whether a shell has this rank, or for how many seconds it waits for one."""
        _library.call("report_stop", is_served=is_served, limit_s=limit)

    def wait(self, deadline: float | None) -> Invitation | None:
        """Waits for a shell; None when time.monotonic() has passed `deadline`, or the launcher has ended."""
        assert _event is not None
        poll = select.poll()
        poll.register(_event, select.POLLIN)
        if self._launcher_end is not None:
            poll.register(self._launcher_end, select.POLLIN)
        while True:
            taken = _library.call("take_invitation")
            if taken["invitation"] is not None:
                return Invitation(**taken["invitation"])
            if taken["detached"] and self._is_breakpoint:
                raise Detached
            left = None if deadline is None else deadline - time.monotonic()
            if self.has_lost_launcher or (left is not None and left <= 0):
                return None
            ready = poll.poll(None if left is None else min(left, _LONGEST_POLL_SECONDS) * 1e3 + 1)
            self.has_lost_launcher = any(each == self._launcher_end for each, _ in ready)
