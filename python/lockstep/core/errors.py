"""The exceptions of this package. Each text says what happened, where, and how to fix it."""

from __future__ import annotations


class LockstepError(RuntimeError):
    """Base of all exceptions of this package."""


class ArgumentError(LockstepError, ValueError):
    """An argument that an inspector can't use: a rank that does not exist, a tensor without bytes, an option outside
    its range. Nothing has been exchanged."""


class PeerLeft(LockstepError):
    """A rank was lost after all ranks had called. The process groups of the program are not affected."""


class Aborted(LockstepError):
    """The inspection was aborted."""


class PythonRaised(LockstepError):
    """A step has raised. Never seen by users, who get the step's own exception."""


FOR_NAME: dict[str, type[LockstepError]] = {
    "ArgumentError": ArgumentError,
    "PeerLeft": PeerLeft,
    "Aborted": Aborted,
    "PythonRaised": PythonRaised,
    "Error": LockstepError,
}
