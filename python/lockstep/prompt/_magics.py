"""What magics of a prompt call: %nan on, off and status."""

from __future__ import annotations

from typing import Any

from lockstep.core.errors import ArgumentError
from lockstep.watches import _watches

_nan: _watches.Watch | None = None


def nan_on(*objects: Any) -> None:
    global _nan
    nan_off()
    _nan = _watches.nan_watch(*objects)


def nan_off() -> None:
    global _nan
    if _nan is not None:
        _nan.close()
        _nan = None


def nan_status() -> dict[str, float]:
    if _nan is None:
        raise ArgumentError("nothing is watched: %nan on model optimizer")
    return _nan.status()
