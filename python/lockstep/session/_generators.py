"""The states of generators of random numbers: how they are read and set, and whether one fits. NumPy and torch take some
states without a look, and crash later."""

from __future__ import annotations

import random
import sys
from typing import Any, Callable

import torch

_MOST = {"pos": 624, "buffer_pos": 4, "has_gauss": 1, "has_uint32": 1, "uinteger": (1 << 32) - 1}
_PARTS_OF_NUMPY = ("bit_generator", "key", "pos", "has_gauss", "gauss")  # of numpy.random.get_state(), in order


def accessors_of(value: Any) -> tuple[Callable[[], Any], Callable[[Any], object]] | None:
    """The functions that get and set the state of a generator; None for other values."""
    numpy: Any = sys.modules.get("numpy")
    if isinstance(value, torch.Generator):
        return value.get_state, value.set_state
    if isinstance(value, random.Random):
        return value.getstate, value.setstate
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        return value.get_state, value.set_state
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    return None


def fits(saved: Any, now: Any, part: str = "") -> bool:
    """Whether a state is one of the generator whose state is `now`: of the same form, and with numbers in their range."""
    if isinstance(now, dict):
        return isinstance(saved, dict) and saved.keys() == now.keys() and all(fits(saved[key], now[key], key) for key in now)
    if isinstance(now, (tuple, list)):
        parts = _PARTS_OF_NUMPY if len(now) == len(_PARTS_OF_NUMPY) and isinstance(now[0], str) else ("",) * len(now)
        return type(saved) is type(now) and len(saved) == len(now) and all(map(fits, saved, now, parts))
    if isinstance(now, str):
        return bool(saved == now)
    if now is None or isinstance(now, float):
        return saved is None or isinstance(saved, float)
    if hasattr(now, "shape") and now.shape != ():
        return type(saved) is type(now) and saved.shape == now.shape and saved.dtype == now.dtype
    return hasattr(saved, "__index__") and 0 <= int(saved) <= _MOST.get(part, (1 << 128) - 1)
