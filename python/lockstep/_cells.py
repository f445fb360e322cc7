"""Python cells of a prompt: they run in a frame of the program, whose locals they read and assign."""

from __future__ import annotations

import __future__ as futures
import ast
import builtins
import collections
import contextlib
import ctypes
import json
import linecache
import math
import os
import sys
import traceback
from types import CodeType, FrameType, TracebackType
from typing import Any, Iterator, Mapping, MutableMapping

from lockstep import _library

_FUTURE_FLAGS = 0
for _name in futures.all_feature_names:
    _FUTURE_FLAGS |= getattr(futures, _name).compiler_flag
_LONGEST_VALUE = 1 << 18  # characters


class _Scope(dict):  # type: ignore[type-arg]
    """The globals of a cell in a function's frame. Functions, lambdas and comprehensions of a cell find locals of the
    frame as they find globals; what a cell assigns after `global` is kept here until it is over."""

    def __init__(self, variables: Mapping[str, Any], frame_globals: dict[str, Any]) -> None:
        super().__init__(__builtins__=frame_globals.get("__builtins__", builtins))
        self._variables = variables
        self._globals = frame_globals

    def __missing__(self, name: str) -> Any:
        try:
            return self._variables[name]
        except KeyError:
            return self._globals[name]

    def hand_over(self) -> None:
        for name in [each for each in self if each != "__builtins__"]:
            self._globals[name] = dict.pop(self, name)


class _Locals(MutableMapping[str, Any]):
    """The locals of such a cell: those of the frame. Names that it does not have are looked up in the globals here,
    since Python does not ask a subclass of dict for them."""

    def __init__(self, variables: MutableMapping[str, Any], frame_globals: dict[str, Any]) -> None:
        self._variables = variables
        self._globals = frame_globals

    def __getitem__(self, name: str) -> Any:
        try:
            return self._variables[name]
        except KeyError:
            return self._globals[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._variables[name] = value

    def __delitem__(self, name: str) -> None:
        del self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __contains__(self, name: object) -> bool:
        return name in self._variables


class Frames:
    """The frames of a stopped thread, from the caller of `breakpoint` to the outermost, and the one that is selected."""

    def __init__(self, frame: FrameType) -> None:
        self.all = list(outward(frame))
        self.index = 0

    @property
    def selected(self) -> FrameType:
        return self.all[self.index]

    def move(self, count: int) -> None:
        """Selects a frame that is `count` frames nearer to the outermost one; the last there is, if there are less."""
        self.index = max(0, min(len(self.all) - 1, self.index + count))

    def describe(self) -> str:
        """As pdb's `where` shows them: innermost last, with `>` at the one that is selected."""
        lines = []
        for index in range(len(self.all) - 1, -1, -1):
            frame = self.all[index]
            lines.append(f"{'>' if index == self.index else ' '} {place_of(frame)}")
            source = linecache.getline(frame.f_code.co_filename, frame.f_lineno, frame.f_globals).strip()
            if source:
                lines.append(f"      {source}")
        return "\n".join(lines)


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        name = frame.f_code.co_filename
        if not _is_ours(name) and not name.startswith("<frozen "):
            yield frame
        frame = frame.f_back


def place_of(frame: FrameType) -> str:
    """"train.py, line 31, in main"."""
    name = frame.f_code.co_filename
    if not name.startswith("<"):
        name = os.path.abspath(name)
        if name.startswith(_library.working_folder()):
            name = name[len(_library.working_folder()) :]
    return f"{name}, line {frame.f_lineno}, in {frame.f_code.co_name}"


def file_name(number: int) -> str:
    return f"<cell {number}>"


class Cell:
    """A cell, compiled. Raises SyntaxError and ValueError as compile() does."""

    def __init__(self, text: str, number: int, frame: FrameType) -> None:
        name = file_name(number)
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        flags = frame.f_code.co_flags & _FUTURE_FLAGS
        tree = ast.parse(text, name)
        self.statements: CodeType | None = None
        self.value: CodeType | None = None
        body = tree.body
        if body and isinstance(body[-1], ast.Expr) and not _is_silenced(text):
            expression = ast.Expression(body.pop().value)  # type: ignore[attr-defined]
            self.value = compile(expression, name, "eval", flags, dont_inherit=True)
        if body:
            self.statements = compile(tree, name, "exec", flags, dont_inherit=True)

    def run(self, frame: FrameType, *, own_names: bool = False) -> Any:
        """The value of the last expression, None without one. With `own_names`, what the cell assigns and defines is
        gone after it."""
        with _names_of(frame, own_names) as (scope, variables):
            if self.statements is not None:
                exec(self.statements, scope, variables)
            return None if self.value is None else eval(self.value, scope, variables)


@contextlib.contextmanager
def _names_of(
    frame: FrameType, own_names: bool = False
) -> Iterator[tuple[dict[str, Any], MutableMapping[str, Any]]]:
    """Globals and locals with which code runs in the frame. What it assigns is in the frame afterwards; with `own_names`
    it is gone."""
    scope: dict[str, Any] = frame.f_globals
    variables: MutableMapping[str, Any] = frame.f_locals
    in_function = variables is not frame.f_globals
    if own_names:
        variables = collections.ChainMap({}, variables)
    if own_names or (in_function and frame.f_code.co_flags & 1):  # CO_OPTIMIZED: not the body of a class
        scope = _Scope(variables, frame.f_globals)
        variables = _Locals(variables, frame.f_globals)
    try:
        yield scope, variables
    finally:
        if isinstance(scope, _Scope):
            scope.hand_over()
        if in_function and sys.version_info < (3, 13):  # later f_locals writes through
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(1))


_VALUE = "__lockstep_value"


def assign(frame: FrameType, target: str, value: Any) -> None:
    """`target = value` in the frame. Raises what Python raises, SyntaxError where `target` is nothing to assign to."""
    tree = ast.parse(f"{target} = {_VALUE}", "<py>")
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assign):
        raise SyntaxError("it is nothing that a value can be assigned to")
    with _names_of(frame) as (scope, variables):
        scope[_VALUE] = value
        try:
            exec(compile(tree, "<py>", "exec", dont_inherit=True), scope, variables)
        finally:
            dict.pop(scope, _VALUE, None)


def _is_silenced(text: str) -> bool:
    """Whether the last statement ends with a semicolon, as in IPython: its value is not shown."""
    import io
    import tokenize

    last = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.DEDENT):
                last = token.string
    except (tokenize.TokenError, IndentationError):
        return False
    return last == ";"


def text_of(value: Any) -> str:
    text = repr(value)
    if len(text) > _LONGEST_VALUE:
        text = f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"
    return text


def data_of(value: Any) -> Any:
    """The value as JSON; None if it has no such form."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_VALUE else None
    if isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, (list, tuple, dict)) and len(value) <= 1000:
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return None
        return json.loads(text) if len(text) <= _LONGEST_VALUE else None
    return None


def _is_ours(file: str) -> bool:
    return file.startswith(_library.FOLDER.as_posix() + os.sep)


def _trace_of_user(error: BaseException, cell: str) -> TracebackType | None:
    """From the cell on, without the frames of this package before it; none of a text that does not compile."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != cell:
        trace = trace.tb_next
    return trace


def describe_error(error: BaseException, number: int) -> dict[str, Any]:
    """The fields of CellError (protocol/worker_messages.h)."""
    trace = _trace_of_user(error, file_name(number))
    described = traceback.TracebackException(type(error), error, trace, compact=True)
    while isinstance(error, KeyboardInterrupt) and described.stack and _is_ours(described.stack[-1].filename):
        described.stack.pop()  # the handler of the interrupt
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    line = 0
    if isinstance(error, SyntaxError) and error.filename == file_name(number):
        line = error.lineno or 0
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == file_name(number):
            line = trace.tb_lineno
        frames.append(f"{code.co_name}() at {code.co_filename.strip('<>')}, line {trace.tb_lineno}")
        trace = trace.tb_next
    try:
        message = str(error)
    except Exception as failure:  # of the user's class
        message = f"<its text can't be made: {type(failure).__name__}>"
    return {
        "type": name,
        "message": message,
        "where": f"cell {number}, line {line}" if line else f"cell {number}",
        "where_cell": number,
        "where_line": line,
        "root_cause": True,
        "stack": frames[::-1],
        "traceback": "".join(described.format()).rstrip("\n"),
    }
