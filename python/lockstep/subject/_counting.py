"""Whether steps count: an inspector may run a step and undo it."""

from __future__ import annotations

import contextlib
from typing import Iterator

_uncounted = 0


@contextlib.contextmanager
def uncounted(active: bool) -> Iterator[None]:
    """Counts no steps within it, if `active`: an inspector runs a step and undoes it."""
    global _uncounted
    _uncounted += active
    try:
        yield
    finally:
        _uncounted -= active


def is_counted() -> bool:
    return _uncounted == 0
