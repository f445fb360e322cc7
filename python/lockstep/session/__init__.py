"""Sessions whose ranks are Python: `lockstep --python` starts them, and they sit at its prompt
(docs/python-sessions.md)."""

from __future__ import annotations

from typing import Any, Iterable


def restore(source: int, to: Iterable[int]) -> Any:
    """Copies the state of modules, optimizers, tensors and generators among the names of the cells from rank `source`
    to the ranks `to`, as `%restart --from` does. Collective over all ranks."""
    from lockstep.session import _restore

    return _restore.run(source, list(to))


def write_checkpoint(folder: str) -> Any:
    """Writes what the names of the cells hold into files of `folder`, one for each rank, as `%checkpoint` does.
    Collective over all ranks. Returns what was written and left out. Raises LockstepError."""
    from lockstep.session import _checkpoint

    return _checkpoint.write(folder)


def read_checkpoint(folder: str) -> Any:
    """Reads the files of write_checkpoint() or `%checkpoint` back into the same names, as `%restore` does. Collective
    over all ranks. Returns what was read and left out. Raises LockstepError."""
    from lockstep.session import _checkpoint

    return _checkpoint.read(folder)
