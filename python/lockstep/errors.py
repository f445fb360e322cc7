"""What this package raises. Each text says what happened, where, and how to fix it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.report import Report


class LockstepError(RuntimeError):
    """Base of all exceptions of this package."""


class ArgumentError(LockstepError, ValueError):
    """An argument that an inspector can't use: a rank that does not exist, a tensor without bytes, an option outside
    its range. Nothing has been exchanged."""


class PeerLeft(LockstepError):
    """A rank was lost after all ranks had called. The process groups of the program are not affected."""


class Aborted(LockstepError):
    """The inspection was aborted."""


class FaultFound(LockstepError):
    """A fault, raised where `raise_on_fault=True` asks for it; on every rank that took part."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report).rstrip())
        self.report = report


class PythonRaised(LockstepError):
    """A step has raised. Never seen by users, who get the step's own exception."""


FOR_NAME: dict[str, type[LockstepError]] = {
    "ArgumentError": ArgumentError,
    "PeerLeft": PeerLeft,
    "Aborted": Aborted,
    "PythonRaised": PythonRaised,
    "Error": LockstepError,
}
