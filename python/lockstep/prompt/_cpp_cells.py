"""C++ cells of a prompt. The shell compiles them; this rank loads and runs them (python/cells/operators.cpp), and gives
them tensors of the program."""

from __future__ import annotations

import json
import os
import pathlib
import threading
from types import FrameType
from typing import Any, Callable

import torch

from lockstep.core import _device, _exceptions, _group, _library
from lockstep.core.errors import LockstepError
from lockstep.inspectors import _inspectors
from lockstep.prompt import _cells, _scope
from lockstep.subject import _sharding

_MEETING_SECONDS = 10.0

_library_of_operators: torch.library.Library | None = None
_frame: Callable[[], FrameType] | None = None  # in which expressions are evaluated
_post: Callable[[dict[str, Any]], None] | None = None  # sends what a cell shows
_names = threading.RLock()  # held while an expression or an assignment has the names of the frame: cells have threads


def _new_lock() -> None:
    global _names
    _names = threading.RLock()  # the thread that held it is not in the child of a fork


os.register_at_fork(after_in_child=_new_lock)


def headers() -> pathlib.Path:
    """The folder of Lockstep's headers that fit the library of this package."""
    shared = _library.shared()
    installed = shared.parent / "include" / "lockstep"
    if (installed / "worker" / "cell" / "cell.h").is_file():
        return installed
    named = shared / "headers.folder"  # of a build folder: the tree
    return pathlib.Path(named.read_text().strip()) if named.is_file() else installed


def describe() -> dict[str, Any]:
    """The torch of this process and the headers of this package, for which the shell compiles cells."""
    folder = pathlib.Path(_library.torch_folder())
    problem = ""
    if not torch._C._GLIBCXX_USE_CXX11_ABI:
        problem = (f"torch {torch.__version__} was built with the old ABI of the C++ library (_GLIBCXX_USE_CXX11_ABI=0)"
                   ", with which cells can't be compiled. Install torch from PyPI")
    elif not (folder / "include" / "torch" / "csrc" / "api" / "include" / "torch" / "torch.h").is_file():
        problem = (f"the headers of torch {torch.__version__} are not in {folder / 'include'}. PyPI's torch has them: "
                   "install it again")
    elif not (headers() / "python" / "cells" / "py.h").is_file():
        problem = f"the headers of the package lockstep are not in {headers()}: install its wheel again (tools/wheel)"
    return {"torch": str(folder), "version": str(torch.__version__), "headers": str(headers()), "problem": problem}


class CppCells:
    """The cells of one shell in this rank."""

    def __init__(self, hub: str, rank: int, frame: Callable[[], FrameType],
                 post: Callable[[dict[str, Any]], None]) -> None:
        """`hub`: the socket of the shell. `post` may be called by any thread."""
        self._hub = hub
        self._rank = rank
        self._frame = frame
        self._post = post
        self._prelude = ""

    def use_prelude(self, path: str) -> None:
        """Sets the object that is loaded before the first cell."""
        self._prelude = path

    def load(self, message: dict[str, Any], frames: list[bytes]) -> dict[str, Any]:
        """Returns the message Loaded."""
        try:
            self._begin()
            # Where the shell is on another machine, the object is in a file, which the message names.
            code = torch.frombuffer(bytearray(frames[0]), dtype=torch.uint8) if frames else torch.empty(0)
            loaded: dict[str, Any] = json.loads(torch.ops.lockstep_cells.load(code, json.dumps(message), self._prelude))
            problem = self._meet(message["ranks"])
            if problem:
                loaded["warning"] = problem
            return loaded
        except Exception as error:  # a library that is missing, a full disk
            reason = f"{type(error).__name__}: {error}"
            return {"kind": "loaded", "cell": message["cell"], "ok": False, "message": reason}

    def _meet(self, ranks: list[int]) -> str:
        """Connects the inspectors for a cell of all ranks, whose dist:: and inspect:: use their connections. Returns
        why there are none."""
        if not _group.is_there() or len(ranks) < _group.world_size():
            return ""
        try:
            met = _inspectors.attach(deadline=_MEETING_SECONDS)
            return "" if met else f"dist:: and inspect:: of this cell reach no other rank: {met}"
        except Exception as error:
            return f"dist:: and inspect:: of this cell reach no other rank: {type(error).__name__}: {error}"

    def drop(self, cell: int) -> None:
        if _library_of_operators is not None:
            torch.ops.lockstep_cells.drop(cell)

    def expect(self, cell: int) -> None:
        """Notes that the cell runs now: interrupts reach it from here on, up to forget_interrupts()."""
        self._begin()
        torch.ops.lockstep_cells.arm(cell)

    def forget_interrupts(self) -> None:
        if _library_of_operators is not None:
            torch.ops.lockstep_cells.arm(0)

    def run(self, message: dict[str, Any]) -> dict[str, Any]:
        """Runs the cell, after expect(). Returns the message Done."""
        try:
            done: dict[str, Any] = json.loads(torch.ops.lockstep_cells.run(json.dumps(message)))
            return done
        finally:
            _library.call("take_hooks_back", skipped=_library.skipped_folders(), folder=_library.working_folder())

    def interrupt(self, cell: int) -> None:
        """Interrupts the cell. Called on the thread of the connection."""
        if _library_of_operators is not None:
            torch.ops.lockstep_cells.interrupt(cell)

    def leave(self) -> None:
        """Releases everything of the program, which goes on."""
        global _frame, _post
        _frame = _post = None
        if _library_of_operators is not None:
            torch.ops.lockstep_cells.forget()

    def _begin(self) -> None:
        global _frame, _post
        _load_operators()
        _frame, _post = self._frame, self._post
        device = _device.name()
        torch.ops.lockstep_cells.begin(json.dumps({
            "shell": self._hub,
            "folder": os.path.join(os.path.dirname(self._hub), f"rank-{self._rank}"),
            "rank": {
                "rank": _group.rank() if _group.is_there() else self._rank,
                "world_size": _group.world_size(),
                "local_rank": int(os.environ.get("LOCAL_RANK", str(self._rank))),
                "node_rank": int(os.environ.get("GROUP_RANK", "0")),
                "gpu_id": int(device[5:]) if device != "cpu" else -1,
                "device": device,
            },
        }))


def _load_operators() -> None:
    global _library_of_operators
    if _library_of_operators is not None:
        return
    _library.load()
    path = _library.libraries() / "liblockstep_cells.so"
    try:
        torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise LockstepError(f"C++ cells need {path.name} of the package: {error}") from None
    operators = torch.library.Library("lockstep_cells", "IMPL")  # type: ignore[no-untyped-call]
    for name, function in (("tensor", _tensor), ("number", _number), ("set", _set), ("post", _post_text)):
        operators.impl(name, function, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
    _library_of_operators = operators


def _post_text(message: str) -> None:
    if _post is not None:
        _post(json.loads(message))


def _evaluate(function: str, expression: str) -> tuple[Any, str]:
    """The value, or the reason why there is none."""
    assert _frame is not None
    try:
        with _names, _scope.names_of(_frame()) as (scope, variables):
            return eval(compile(expression, "<py>", "eval"), scope, variables), ""
    except BaseException as error:  # it is the cell's, in C++
        return None, f"py::{function}(\"{expression}\"): {_exceptions.name_of(error)}: {_exceptions.message_of(error)}"


def _tensor(expression: str) -> tuple[torch.Tensor, str]:
    value, problem = _evaluate("tensor", expression)
    nothing = torch.empty(0)
    if problem:
        return nothing, problem
    called = f"py::tensor(\"{expression}\")"
    if not isinstance(value, torch.Tensor):
        what = f"{called}: it is {_kind(value)} and no tensor"
        if isinstance(value, (bool, int, float)):
            return nothing, what + "; py::number reads numbers"
        if isinstance(value, torch.nn.Module):
            names = [name for name, _ in value.named_parameters()]
            known = f"; it has the parameters {', '.join(names[:8])}{' …' if names[8:] else ''}" if names else ""
            return nothing, what + known
        return nothing, what
    if _sharding.is_dtensor(value):
        local = _sharding.local_of(value)
        return (nothing, f"{called}: this rank has no part of it") if local is None else (local, "")
    if type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return nothing, (f"{called}: it is a {type(value).__module__}.{type(value).__qualname__}, whose elements C++ "
                         "can't see: name a plain tensor of it")
    return value, ""


def _number(expression: str) -> tuple[float, str]:
    value, problem = _evaluate("number", expression)
    if problem:
        return 0.0, problem
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value), ""
    except Exception:  # of a class of the user's, too
        return 0.0, f"py::number(\"{expression}\"): it is {_kind(value)} and no number"


def _set(target: str, value: torch.Tensor) -> str:
    assert _frame is not None
    try:
        with _names:
            _cells.assign(_frame(), target, value)
        return ""
    except BaseException as error:  # it is the cell's, in C++
        return f"py::set(\"{target}\"): {_exceptions.name_of(error)}: {_exceptions.message_of(error)}"


def _kind(value: Any) -> str:
    """"a float (0.01)", "a list of 3"."""
    name = type(value).__name__
    if value is None:
        return "None"
    article = "an" if name[:1].lower() in "aeiou" else "a"
    if isinstance(value, (bool, int, float)):
        return f"{article} {name} ({value})"
    if isinstance(value, torch.Tensor):
        return f"{article} {name} of size {list(value.shape)}"
    if isinstance(value, (list, tuple, dict, set)):
        return f"{article} {name} of {len(value)}"
    return f"{article} {name}"
