"""%debug: Python's debugger at the frames of the last exception of this rank. The user types at the shell, which passes
on one command at a time (shell/magics/debug.cpp)."""

from __future__ import annotations

import pdb
import sys
from types import TracebackType
from typing import Any

import torch.distributed as dist

from lockstep.core import _exceptions
from lockstep.prompt import _cells, _magics

# They run the program, or read what a person types on their own.
_NOT_HERE = ("commands", "debug", "interact", "restart", "run")


class _Debugger(pdb.Pdb):
    def __init__(self) -> None:
        super().__init__(nosigint=True, readrc=False)
        self.prompt = ""

    def onecmd(self, line: str) -> bool:
        self.stdin, self.stdout = sys.stdin, sys.stdout  # of this cell
        word = self.parseline(line)[0]
        if word in _NOT_HERE:
            self.error(f"{word} is not possible after an exception on a rank")
            return False
        return bool(super().onecmd(line))


_failed: tuple[BaseException, TracebackType] | None = None
_open: _Debugger | None = None


def note(error: BaseException, number: int) -> None:
    """Keeps the frames of a cell that has failed, up to the next one."""
    global _failed
    trace = _cells.trace_of_user(error, _cells.file_name(number))
    if trace is not None:
        _failed = error, trace


def forget() -> None:
    global _failed, _open
    _failed = _open = None


_magics.at_reset.append(forget)


def begin() -> dict[str, Any]:
    """Shows the innermost frame; {"error": …} where there is none."""
    global _open
    if _failed is None:
        return {"error": f"no cell has raised an exception on rank {dist.get_rank()}"}
    error, trace = _failed
    print(f"{_exceptions.name_of(error)}: {_exceptions.message_of(error)}")
    _open = _Debugger()
    _open.stdout = sys.stdout
    _open.reset()
    _open.setup(None, trace)
    _open.print_stack_entry(_open.stack[_open.curindex])
    return {}


def run(line: str) -> dict[str, Any]:
    """Runs a command. Returns whether the debugger is over."""
    if _open is None or _open.onecmd(_open.precmd(line)):
        return end()
    return {"over": False}


def end() -> dict[str, Any]:
    global _open
    _open = None
    return {"over": True}
