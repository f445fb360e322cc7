"""sys.stdin, sys.stdout and sys.stderr of a cell."""

from __future__ import annotations

import io
import sys
from typing import Any


class _NoInput(io.TextIOBase):
    """sys.stdin of a cell: the terminal is the prompt's, and two readers would take each other's keys."""

    def readable(self) -> bool:
        return True

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # what input() and pdb call
        raise EOFError("a cell has no standard input")

    def read(self, size: int | None = -1, /) -> str:
        return ""


class Streams:
    """Replaces the three streams while a cell runs: those of the program may write past descriptors 1 and 2, as
    pytest's do, and what a cell prints belongs to the cell."""

    _NAMES = ("stdout", "stderr")

    def __init__(self) -> None:
        self._replaced: dict[str, tuple[Any, Any]] = {}  # by name: before, and of the cell

    def begin(self) -> None:
        self._replace("stdin", _NoInput())
        for descriptor, name in enumerate(self._NAMES, start=1):
            try:
                is_own = getattr(sys, name).fileno() != descriptor
            except Exception:  # None, closed, without a descriptor, or of a class of the program's own
                is_own = True
            if is_own:
                binary = open(descriptor, "wb", buffering=0, closefd=False)
                text = io.TextIOWrapper(binary, "utf-8", "backslashreplace", line_buffering=True, write_through=True)
                self._replace(name, text)

    def _replace(self, name: str, stream: Any) -> None:
        self._replaced[name] = (getattr(sys, name, None), stream)
        setattr(sys, name, stream)

    def end(self) -> None:
        for name, (before, stream) in self._replaced.items():
            if getattr(sys, name, stream) is stream:  # and not one that the cell has put there
                setattr(sys, name, before)
        self._replaced.clear()
