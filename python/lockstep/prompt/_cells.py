"""Python cells of a prompt, which run in a frame of the program and read and assign its locals."""

from __future__ import annotations

import __future__ as futures
import ast
import inspect
import io
import json
import linecache
import tokenize
import traceback
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from lockstep.core import _exceptions
from lockstep.core.errors import LockstepError
from lockstep.prompt import _frames, _scope

if TYPE_CHECKING:
    import asyncio

_FUTURE_FLAGS = 0
for _name in futures.all_feature_names:
    _FUTURE_FLAGS |= getattr(futures, _name).compiler_flag
_LONGEST_VALUE = 1 << 18  # characters


def file_name(number: int) -> str:
    return f"<cell {number}>"


class _Globals(ast.NodeTransformer):
    """Removes the `global` statements at the top level of a cell. Python would assign these names in the dictionary of
    the cell's globals (_scope.py), so that the program would see them late."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_Global(self, node: ast.Global) -> ast.AST:
        self.names.update(node.names)
        return ast.copy_location(ast.Pass(), node)

    def visit_FunctionDef(self, node: ast.AST) -> ast.AST:  # a scope of its own
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = visit_FunctionDef


class Step(NamedTuple):
    """A statement of a cell."""

    line: int  # its first
    code: CodeType


class Cell:
    """A cell, compiled. Raises SyntaxError and ValueError as compile() does."""

    def __init__(self, text: str, number: int, frame: FrameType, shown: str = "") -> None:
        """`shown`: what tracebacks have in place of the last line of `text`, which a magic has made."""
        name = file_name(number)
        lines = text.splitlines(keepends=True)
        linecache.cache[name] = (len(text), None, lines, name)
        flags = frame.f_code.co_flags & _FUTURE_FLAGS | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        try:
            tree = ast.parse(text, name)
        except SyntaxError as error:
            if shown:
                error.text, error.offset, error.end_offset = shown, None, None
            raise
        if shown:
            lines[-1] = shown
            for node in ast.walk(tree):  # tracebacks mark no part of the line
                if isinstance(node, (ast.stmt, ast.expr)):
                    node.col_offset, node.end_col_offset = 0, len(shown.encode())
        self._globals = _Globals()
        if "global" in text and any(isinstance(each, ast.Global) for each in ast.walk(tree)):
            compile(tree, name, "exec", flags, dont_inherit=True)  # raises where a name is used before
            tree = self._globals.visit(tree)
        whole = compile(tree, name, "exec", flags, dont_inherit=True)
        flags |= whole.co_flags & _FUTURE_FLAGS
        body = tree.body
        value = body.pop() if body and isinstance(body[-1], ast.Expr) and not _is_silenced(text) else None
        # A cell that awaits is one task: what it begins goes on while it waits.
        parts = [body] if whole.co_flags & inspect.CO_COROUTINE else [[each] for each in body]
        self.steps = [Step(each[0].lineno, compile(ast.Module(each, []), name, "exec", flags, dont_inherit=True))
                      for each in parts if each]
        if value is not None:
            expression = ast.Expression(value.value)  # type: ignore[attr-defined]
            self.steps.append(Step(value.lineno, compile(expression, name, "eval", flags, dont_inherit=True)))

    def run(self, frame: FrameType, *, own_names: bool = False,
            begins: Callable[[int, Step], bool] = lambda index, step: True) -> Any:
        """Runs the steps for which `begins` returns True. Returns the value of the last one, if it is an expression, or
        else None. With `own_names`, what the cell assigns and defines is gone after it."""
        value = None
        with _scope.names_of(frame, own_names, self._globals.names) as (scope, variables):
            for index, step in enumerate(self.steps):
                value = _evaluate(step.code, scope, variables) if begins(index, step) else None
        return value


_loop: asyncio.AbstractEventLoop | None = None  # in which cells await: tasks that one begins go on in the next one


def _evaluate(code: CodeType, scope: dict[str, Any], variables: Any) -> Any:
    global _loop
    value = eval(code, scope, variables)
    if not code.co_flags & inspect.CO_COROUTINE:
        return value
    import asyncio  # not by `import lockstep`

    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
    task = _loop.create_task(value)
    try:
        return _loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        raise


_VALUE = "__lockstep_value"


def assign(frame: FrameType, target: str, value: Any) -> None:
    """`target = value` in the frame. Raises what Python raises, SyntaxError where `target` is nothing to assign to."""
    tree = ast.parse(f"{target} = {_VALUE}", "<py>")
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Assign):
        raise SyntaxError("it is nothing that a value can be assigned to")
    with _scope.names_of(frame) as (scope, variables):
        scope[_VALUE] = value
        try:
            exec(compile(tree, "<py>", "exec", dont_inherit=True), scope, variables)
        finally:
            dict.pop(scope, _VALUE, None)


def _is_silenced(text: str) -> bool:
    """Whether the last statement ends with a semicolon, as in IPython: its value is not shown."""
    last = ""
    if ";" not in text:
        return False
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.DEDENT):
                last = token.string
    except (tokenize.TokenError, IndentationError):
        return False
    return last == ";"


def text_of(value: Any) -> str:
    return _exceptions.shortened(repr(value), _LONGEST_VALUE)


def data_of(value: Any) -> Any:
    """The value as JSON; None if it has no such form."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_VALUE else None
    if type(value) is int:  # the most frequent value: it takes no JSON to see that it has such a form
        return value if -(2**63) <= value < 2**64 else None
    is_container = isinstance(value, (list, tuple, dict))
    if not isinstance(value, (bool, int, float)) and not (is_container and len(value) <= 1000):
        return None
    try:
        text = json.dumps(value, allow_nan=False)
        return json.loads(text, parse_int=_whole_number) if len(text) <= _LONGEST_VALUE else None
    except (TypeError, ValueError, RecursionError):
        return None


def _whole_number(text: str) -> int:
    """The number in `text`. Raises ValueError for a number that no integer of C++ holds."""
    number = int(text)
    if not -(2**63) <= number < 2**64:
        raise ValueError(text)
    return number


def trace_of_user(error: BaseException, cell: str) -> TracebackType | None:
    """The traceback without the frames of this package that come first; None for a cell that does not compile."""
    trace = error.__traceback__
    first = trace
    while trace is not None and trace.tb_frame.f_code.co_filename != cell:
        trace = trace.tb_next
    if trace is not None or isinstance(error, SyntaxError):
        return trace
    while first is not None and _frames.is_ours(first.tb_frame.f_code.co_filename):
        first = first.tb_next
    return first  # of what the package called: __repr__ of a value


def describe_error(error: BaseException, number: int) -> dict[str, Any]:
    """The fields of CellError (protocol/worker_messages.h)."""
    traced = trace_of_user(error, file_name(number))
    line = 0
    if isinstance(error, SyntaxError) and error.filename == file_name(number):
        line = error.lineno or 0
    frames = []
    for frame, at in traceback.walk_tb(traced):
        code = frame.f_code
        if code.co_filename == file_name(number):
            line = at or 0
        frames.append((code.co_filename, f"{code.co_name}() at {code.co_filename.strip('<>')}, line {at}"))
    while frames and _says_nothing(error, frames[-1][0]):
        frames.pop()
    return {
        "type": _exceptions.name_of(error),
        "message": _exceptions.message_of(error),
        "where": f"cell {number}, line {line}" if line else f"cell {number}",
        "where_cell": number,
        "where_line": line,
        "root_cause": True,
        "stack": [text for _, text in reversed(frames)],
        "traceback": _exceptions.shortened(_traceback_of(error, traced), _LONGEST_VALUE),
    }


def _says_nothing(error: BaseException, innermost: str) -> bool:
    """Whether the innermost frame, of that file, is the handler of an interrupt, or what has raised an error of this package."""
    return isinstance(error, (KeyboardInterrupt, LockstepError)) and _frames.is_ours(innermost)


def _traceback_of(error: BaseException, trace: TracebackType | None) -> str:
    """The traceback as Python prints it. Never raises."""
    try:
        described = traceback.TracebackException(type(error), error, trace, compact=True)
        stack = described.stack
        while stack and _says_nothing(error, stack[-1].filename):
            stack.pop()
        return "".join(described.format()).rstrip("\n")
    except BaseException as failure:  # of the program's class
        return f"{_exceptions.name_of(error)}, whose traceback can't be made: {type(failure).__name__}"
