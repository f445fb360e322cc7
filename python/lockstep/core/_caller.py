"""Where the user's program called: file and line for findings, and the text of an argument, by which findings name the
object."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from types import CodeType, FrameType

from lockstep.core import _library


def user_frame() -> FrameType | None:
    """The innermost frame that belongs neither to this package nor to torch."""
    skipped = tuple(_library.skipped_folders())
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and absolute(frame.f_code.co_filename).startswith(skipped):
        frame = frame.f_back
    return frame


def where(frame: FrameType | None) -> str:
    """"train.py, line 31"; empty without a frame."""
    if frame is None:
        return ""
    name = frame.f_code.co_filename
    name = name.strip("<>") if name.startswith("<cell ") else shown_file(name)  # a cell of a prompt
    return f"{name}, line {frame.f_lineno or 0}"


def shown_file(name: str) -> str:
    """A file of code as findings name it: relative to the folder in which the program was started, if it is there."""
    folder = _library.working_folder()
    return name if name.startswith("<") else absolute(name).removeprefix(folder)


def absolute(name: str) -> str:
    """The absolute path of a file of code. Python keeps the name of a script as it was typed, relative to the folder in
    which the program was started."""
    return os.path.normpath(os.path.join(_library.working_folder(), name))


def argument_text(frame: FrameType | None, function: str) -> str:
    """The first argument of the call that `frame` is in, as it is written: "model", "net.head", "batches[0]". Empty if
    it is not a name, or the source is not at hand. It is the same on all ranks that run the same line."""
    return "" if frame is None else _argument_text(frame.f_code, frame.f_lasti, frame.f_lineno, function)


@functools.lru_cache(maxsize=1024)
def _argument_text(code: CodeType, instruction: int, line: int, function: str) -> str:
    calls = [each for each in _calls_at(code, instruction, line) if _name_of(each.func) == function]
    texts = {ast.unparse(each.args[0]) for each in calls if each.args and _is_name(each.args[0])}
    text = texts.pop() if len(texts) == 1 and len(calls) == 1 else ""
    return text if len(text) <= 60 else ""


def _name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_name(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return True
    if isinstance(node, ast.Attribute):
        return _is_name(node.value)
    if isinstance(node, ast.Subscript):
        return _is_name(node.value) and isinstance(node.slice, (ast.Constant, ast.Name))
    return False


def _calls_at(code: CodeType, instruction: int, line: int) -> list[ast.Call]:
    positions = getattr(code, "co_positions", None)  # from Python 3.11 on
    if positions is not None:
        first, last, begin, end = list(positions())[instruction // 2]
        if None in (first, last, begin, end):
            return []
        lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
        if not lines or not all(lines):
            return []
        lines[-1] = lines[-1][:end]
        lines[0] = lines[0][begin:]
        try:
            tree: ast.AST = ast.parse("(" + b"".join(lines).decode() + ")", mode="eval")
        except (SyntaxError, ValueError):
            return []
        body = tree.body if isinstance(tree, ast.Expression) else None
        return [body] if isinstance(body, ast.Call) else []
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        return []
    return [each for each in ast.walk(tree) if isinstance(each, ast.Call) and each.lineno == line]
