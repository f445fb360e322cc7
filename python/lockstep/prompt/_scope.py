"""The names with which code of a prompt runs in a frame of the program: its locals, which the code reads and assigns,
its globals, and builtins.

Python runs a cell as the body of a module, whose globals and locals are mappings of ours. Functions, classes, lambdas
and comprehensions of a cell find the locals of the frame as they find globals, also when they are called later."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import inspect
import os
import sys
import threading
import weakref
from types import FrameType
from typing import Any, Collection, Iterator, Mapping, MutableMapping

_COPIES = sys.version_info < (3, 13)  # f_locals of a function is a copy; from 3.13 on it writes through
_OF_MODULE = ("__name__", "__package__", "__spec__", "__loader__", "__file__", "__builtins__")

_running: dict[FrameType, MutableMapping[str, Any]] = {}
"""The locals of frames in which code of a prompt runs, with what it has assigned so far."""

_copies = threading.RLock()
"""Held while the copy of a function's locals is made, changed or written back: each read of f_locals makes it again, on
whichever thread, and undoes what is not written back yet."""


def _new_lock() -> None:
    global _copies
    _copies = threading.RLock()  # the thread that held it is not in the child of a fork


os.register_at_fork(after_in_child=_new_lock)


def locals_of(frame: FrameType) -> Mapping[str, Any]:
    """The present locals of the frame."""
    with _copies:
        running = _running.get(frame)
        return frame.f_locals if running is None else running


class _Variables(MutableMapping[str, Any]):
    """The locals of a function. Assignments reach the function in write_back(), but at once for variables that
    functions of the program share with it (`nonlocal`)."""

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame
        self._values: Any = frame.f_locals
        self._shared = {*frame.f_code.co_cellvars, *frame.f_code.co_freevars}
        self._assigned: dict[str, Any] = {}
        self._deleted: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        if name in self._assigned:
            return self._assigned[name]
        if name in self._deleted:
            raise KeyError(name)
        if name not in self._shared:
            return self._values[name]
        with _copies:
            return self._frame.f_locals[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._deleted.discard(name)
        if not _COPIES:
            self._values[name] = value
            return
        self._assigned[name] = value
        if name in self._shared:
            self.write_back()

    def __delitem__(self, name: str) -> None:
        self[name]  # raises KeyError
        if not _COPIES:
            try:
                del self._values[name]
            except (RuntimeError, TypeError, ValueError):  # a variable of a function can't be unbound there
                self._values[name] = None
                self._deleted.add(name)
            return
        self._assigned.pop(name, None)
        self._deleted.add(name)
        if name in self._shared:
            self.write_back()

    def __iter__(self) -> Iterator[str]:
        return iter([*(each for each in self._values if each not in self._assigned and each not in self._deleted),
                     *self._assigned])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:  # of locals() in a cell
        return repr(dict(self))

    def write_back(self) -> None:
        if not _COPIES:
            return
        with _copies:
            values = self._frame.f_locals  # what functions of the program have assigned meanwhile is in it
            values.update(self._assigned)
            for name in self._deleted:
                values.pop(name, None)
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(self._frame), ctypes.c_int(1))
        self._assigned.clear()
        self._deleted.clear()


class _WithGlobals(MutableMapping[str, Any]):
    """Locals of a cell, and the names that it has declared `global`: the program sees these at once."""

    def __init__(self, names: Collection[str], globals_: MutableMapping[str, Any],
                 others: MutableMapping[str, Any]) -> None:
        self._names, self._globals, self._others = names, globals_, others

    def _of(self, name: str) -> MutableMapping[str, Any]:
        return self._globals if name in self._names else self._others

    def __getitem__(self, name: str) -> Any:
        return self._of(name)[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._of(name)[name] = value

    def __delitem__(self, name: str) -> None:
        del self._of(name)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._others)

    def __len__(self) -> int:
        return len(self._others)

    def __repr__(self) -> str:
        return repr(self._others)


class _Scope(dict):  # type: ignore[type-arg]
    """The globals of a cell. What it assigns after `global` is kept here until hand_over()."""

    def __init__(self, frame: FrameType, own: Mapping[str, Any] | None) -> None:
        """`own`: names that are used in place of the frame's locals."""
        super().__init__({name: frame.f_globals[name] for name in _OF_MODULE if name in frame.f_globals})
        self["__builtins__"] = _Builtins(self, frame.f_builtins)
        self._frame = frame
        self._own = own

    def __missing__(self, name: str) -> Any:
        try:
            return (locals_of(self._frame) if self._own is None else self._own)[name]
        except KeyError:
            return self._frame.f_globals[name]

    def __contains__(self, name: object) -> bool:
        return self.get(name, self) is not self

    def get(self, name: Any, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def hand_over(self) -> None:
        for name in [each for each in dict.keys(self) if each not in _OF_MODULE]:
            self._frame.f_globals[name] = dict.pop(self, name)


class _Builtins(dict):  # type: ignore[type-arg]
    """The builtins, where Python looks last. In the body of a module or a class Python does not call __missing__ of a
    dictionary of globals, but it asks the builtins, which look in the scope."""

    def __init__(self, scope: _Scope, builtins: Mapping[str, Any]) -> None:
        super().__init__(builtins)
        self._scope = weakref.ref(scope)  # a cycle would keep the frame, and with it tensors, until it is collected

    def __getitem__(self, name: str) -> Any:
        scope = self._scope()
        if scope is not None:
            try:
                return scope[name]
            except KeyError:
                pass
        return super().__getitem__(name)


_scopes: weakref.WeakValueDictionary[int, _Scope] = weakref.WeakValueDictionary()
"""By id() of the frame, which a key must not keep; a scope keeps its frame, so the id is that of no other one. Of frames
whose cells have left functions: what these assign to globals, other cells of the frame see at once."""


def _scope_of(frame: FrameType) -> _Scope:
    scope = _scopes.get(id(frame))
    if scope is None:
        scope = _scopes[id(frame)] = _Scope(frame, None)
    return scope


@contextlib.contextmanager
def names_of(
    frame: FrameType, own_names: bool = False, global_names: Collection[str] = ()
) -> Iterator[tuple[dict[str, Any], MutableMapping[str, Any]]]:
    """Globals and locals with which code runs in the frame. What it assigns is in the frame afterwards; with
    `own_names` it is gone. `global_names`: of the program's globals, which the code assigns as its locals."""
    in_module = frame.f_locals is frame.f_globals
    if in_module and not own_names:
        yield frame.f_globals, frame.f_globals
        return
    is_function = bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)  # and not the body of a class
    variables: MutableMapping[str, Any] = _Variables(frame) if is_function else frame.f_locals
    own = collections.ChainMap[str, Any]({}, variables) if own_names else None
    scope = _scope_of(frame) if own is None else _Scope(frame, own)
    for each in list(_scopes.values()):
        each.hand_over()  # what functions have assigned since the last cell
    outer = _running.get(frame)
    _running[frame] = variables
    try:
        names: MutableMapping[str, Any] = variables if own is None else own
        yield scope, _WithGlobals(global_names, frame.f_globals, names) if global_names else names
    finally:
        if isinstance(variables, _Variables):
            variables.write_back()
        for each in (*_scopes.values(), scope):
            each.hand_over()
        if outer is None:
            _running.pop(frame, None)
        else:
            _running[frame] = outer


def settle() -> None:
    """Completes what an interrupt has cut short at the end of names_of. Called while no code of a prompt runs."""
    for variables in list(_running.values()):
        if isinstance(variables, _Variables):
            variables.write_back()
    _running.clear()
    for each in list(_scopes.values()):
        each.hand_over()


def forget_values(frame: FrameType) -> None:
    """Lets go of the copy of a function's locals that reading them has left in the frame, so that tensors are freed
    when the function lets go of them."""
    _running.pop(frame, None)
    if not _COPIES or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return
    code, values = frame.f_code, frame.f_locals
    if sys.getrefcount(values) > 3:  # of the frame, of this function, of the call: the program has it from locals()
        return
    for name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        values.pop(name, None)
