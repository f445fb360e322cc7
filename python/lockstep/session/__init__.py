"""Sessions whose ranks are Python: `lockstep --python` starts them, and they sit at its prompt
(docs/python-sessions.md)."""

from __future__ import annotations

from typing import Any, Iterable


def restore(source: int, to: Iterable[int]) -> Any:
    """Copies what modules, optimizers, tensors and generators among the names of the cells hold from rank `source` to the
    ranks `to`, as `%restart --from` does. Collective over all ranks."""
    from lockstep.session import _restore

    return _restore.run(source, list(to))
