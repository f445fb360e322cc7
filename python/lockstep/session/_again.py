"""What a session keeps of its cells, statement by statement, so that a process that takes the place of a lost rank can
run those again that met no other rank. The shell has the list (shell/cells/past_cells.h). The names that a statement
needs and binds are read from its bytecode."""

from __future__ import annotations

import dis
import functools
import inspect
from types import CodeType
from typing import Any

from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

from lockstep.core import _backend, _library
from lockstep.prompt import _cells

_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_LOADS = ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS")
_STORES, _DELETES = ("STORE_NAME", "STORE_GLOBAL"), ("DELETE_NAME", "DELETE_GLOBAL")
_JUMPS = frozenset(dis.hasjrel + dis.hasjabs)
_ENDS = ("JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE", "RETURN_CONST",
         "RAISE_VARARGS", "RERAISE")  # the next instruction does not follow
_lost: dict[str, int] = {}  # names that are not bound since their statement did not run again, and its cell
_needs: dict[str, frozenset[str]] = {}  # functions of cells, and the names that they use when they are called


class _Names:
    """The names of a piece of code. `now`: those that it may look up before it has bound them itself; `later`: those
    that functions which it makes look up when they are called; `bound`: those that it assigns."""

    def __init__(self, code: CodeType) -> None:
        self.later: set[str] = set()
        self.bound: set[str] = set()
        self.now = self._needs(code)

    def _needs(self, code: CodeType, is_inner: bool = False) -> set[str]:
        needs: set[str] = set()
        steps = list(dis.get_instructions(code))
        index = {each.offset: i for i, each in enumerate(steps)}
        handlers = getattr(dis.Bytecode(code), "exception_entries", ())  # since Python 3.11; jumps before
        bound: dict[int, frozenset[str]] = {0: frozenset()}  # before an instruction, whichever way leads there
        todo = [0]
        while todo:
            i = todo.pop()
            each, before = steps[i], bound[i]
            after = before
            if each.opname in _LOADS:
                needs |= {str(each.argval)} - before
            elif isinstance(each.argval, CodeType):
                needs |= self._needs_of_inner(each.argval) - before
            elif each.opname in _STORES or each.opname in _DELETES:
                after = before | {each.argval} if each.opname in _STORES else before - {each.argval}
                if not is_inner or each.opname.endswith("_GLOBAL"):
                    self.bound.add(str(each.argval))
            raised = after if each.opname in _STORES else before
            following = [(index[entry.target], raised) for entry in handlers if entry.start <= each.offset < entry.end]
            if each.opcode in _JUMPS:
                following.append((index[each.argval], after))
            if each.opname not in _ENDS:
                following.append((i + 1, after))
            for there, names in following:
                names &= bound.get(there, names)
                if names != bound.get(there):
                    bound[there] = names
                    todo.append(there)
        return needs

    def _needs_of_inner(self, code: CodeType) -> set[str]:
        """The needs of a class or a comprehension, which runs at once."""
        if not code.co_flags & inspect.CO_NEWLOCALS or code.co_name in _COMPREHENSIONS:
            return self._needs(code, is_inner=True)
        self.later |= _loads(code)
        return set()


def _loads(code: CodeType) -> set[str]:
    names = {str(each.argval) for each in dis.get_instructions(code) if each.opname in _LOADS}
    return names.union(*(_loads(each) for each in code.co_consts if isinstance(each, CodeType)))


def _first_lost(names: set[str]) -> str | None:
    """A lost name among these, or among those that functions of these names need; None: there is none."""
    seen: set[str] = set()
    todo = sorted(names)
    while todo:
        name = todo.pop()
        if name in _lost:
            return name
        if name not in seen:
            seen.add(name)
            todo += sorted(_needs.get(name, ()))
    return None


class Steps:
    """The statements of a cell that runs."""

    def __init__(self, cell: int, arguments: dict[str, Any], names: dict[str, Any], meetings: int) -> None:
        """`arguments`: protocol::function::Python. `meetings`: how often this process had met others when it entered
        the cell."""
        self._cell, self._arguments, self._names = cell, arguments, names
        self._running: int | None = None
        self._done = 0  # statements that have ended, or that did not run again
        self._ran = 0
        self._met_before = meetings
        self._meetings: list[int] = []
        self._groups: list[int] = []
        self._left_out: list[dict[str, Any]] = []

    def begins(self, index: int, step: _cells.Step) -> bool:
        """Begins a statement. Returns whether it runs."""
        if index > 0:  # the cell was entered at its first statement
            self._end_step(int(_library.call("enter_cell", cell=self._cell, step=index)["meetings"]))
        self._groups.append(distributed_c10d._world.group_count)
        if self._arguments.get("again") and not self._runs_again(index, step):
            self._done += 1
            return False
        self._running = index
        return True

    def finish(self, is_ok: bool, meetings: int) -> dict[str, Any]:
        """Ends the cell. Returns fields of the message Done. `meetings`: the present count."""
        if is_ok:
            self._end_step(meetings)
        elif self._running is not None and meetings != self._met_before:
            self._meetings.append(self._running)
        again = bool(self._arguments.get("again"))
        return {"steps_done": self._ran if again else self._done, "meetings": self._meetings, "groups": self._groups,
                "left_out": self._left_out}

    def _end_step(self, meetings: int) -> None:
        if self._running is not None:
            if meetings != self._met_before:
                self._meetings.append(self._running)
            self._running = None
            self._done += 1
            self._ran += 1
        self._met_before = meetings

    def _runs_again(self, index: int, step: _cells.Step) -> bool:
        names = _Names(step.code)
        if index < len(self._arguments["groups"]):  # groups have the numbers that they had
            distributed_c10d._world.group_count = self._arguments["groups"][index]
        lost = _first_lost(names.now)
        why = ""
        if index >= self._arguments["until"]:
            why = "it had not ended there"
        elif index in self._arguments["met"]:
            why = "it met other ranks"
        elif index in self._arguments["unknown"]:
            why = "no rank that lives has reported whether it met others"
        elif lost:
            why = f"it needs {lost} of cell {_lost[lost]}"
        for name in names.bound:
            _lost.pop(name, None)
            _needs.pop(name, None)
            if why:
                _lost[name] = int(self._arguments["number"])
                self._names.pop(name, None)
            elif names.later:
                _needs[name] = frozenset(names.later)
        if why:
            lost_here = f" (so there is no {', '.join(sorted(names.bound))})" if names.bound else ""
            self._left_out.append({"line": step.line, "why": why + lost_here})
        return not why


def watch_wrappers() -> None:
    """Lets the making of a wrapper count as no meeting: it runs again, and then exchanges nothing with other ranks.
    Called once."""
    init = DistributedDataParallel.__init__

    @functools.wraps(init)
    def make(self: DistributedDataParallel, *arguments: Any, **options: Any) -> None:
        if _backend.rejoining:
            options["init_sync"] = False
        _library.call("make_wrapper", begins=True)
        try:
            init(self, *arguments, **options)
        finally:
            _library.call("make_wrapper", begins=False)

    DistributedDataParallel.__init__ = make  # type: ignore[method-assign]
