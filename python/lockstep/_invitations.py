"""Shells that ask this rank to serve their prompt (python/operators/invitations.h)."""

from __future__ import annotations

import os
import select
import time

from lockstep import _agent, _library
from lockstep._prompt import Invitation

_event: int | None = None


def start() -> str | None:
    """Lets shells find this rank. Returns the name of the job; None if no shell can."""
    global _event
    if _event is None:
        _agent.start()
        _event = int(_library.call("expect_invitations")["event"])
    folder = str(_library.call("agent_folder")["folder"])
    return os.path.basename(folder).removeprefix("job-") if folder else None


class Stopped:
    """While it lives, this rank is stopped at `place`."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> Stopped:
        _library.call("set_stopped", place=self._place)
        return self

    def __exit__(self, *_: object) -> None:
        _library.call("set_stopped", place=None)

    def wait(self, deadline: float | None) -> Invitation | None:
        """Waits for a shell; None when time.monotonic() has passed `deadline`."""
        assert _event is not None
        poll = select.poll()
        poll.register(_event, select.POLLIN)
        while True:
            taken = _library.call("take_invitation")
            if taken:
                return Invitation(**taken)
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            poll.poll(None if left is None else left * 1e3 + 1)
