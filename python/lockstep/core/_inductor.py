"""Keeps torch._inductor from being imported when a traceback of torch is read.

torch's function that turns code objects into files and lines (py_symbolize, torch/csrc/profiler/python/
combined_traceback.cpp) asks for torch._inductor.codecache, and torch imports its submodules when they are asked for. So
the first line of a collective that is read costs a rank some 900 modules and most of a second. Among them is
torch.distributed.nn, whose functions have the default group as a default argument: destroy_process_group() does not end
that group any more, and its threads are there when the interpreter ends."""

from __future__ import annotations

import sys
from typing import Any, Callable

import torch

_NAME = "_inductor"


def keep_unloaded() -> None:
    """Keeps C++ from importing torch._inductor from here on. Python code can: `torch._inductor`, `import
    torch._inductor`. Called once in a process."""
    original: Callable[[str], Any] = torch.__dict__["__getattr__"]

    def __getattr__(name: str) -> Any:
        if name == _NAME and not _is_named_by_caller():
            raise AttributeError(f"module 'torch' has no attribute '{name}'")
        return original(name)

    torch.__dict__["__getattr__"] = __getattr__


def _is_named_by_caller() -> bool:
    """Whether Python code asks __getattr__. C++ asks on a thread without frames, or below one that calls a
    collective."""
    try:
        code = sys._getframe(2).f_code
    except ValueError:  # there is none
        return False
    return _NAME in code.co_names or _NAME in code.co_consts
