"""Answers what a shell asks a rank while it is stopped: stacks, completions, what a name is, whether a text is a
complete cell (protocol/questions.h has the fields). The thread that has stopped, on which a cell may run, makes none of
the answers."""

from __future__ import annotations

import codeop
import inspect
import keyword
import re
import sys
from types import FrameType
from typing import Any, Callable, Iterable

from lockstep.core import _exceptions
from lockstep.prompt import _cells, _frames, _scope

_MOST_CANDIDATES = 1000
_OBJECT = re.compile(r"""[^\W\d]\w*(?:\.[^\W\d]\w*|\[(?:\d+|'[^']*'|"[^"]*")\])*$""")  # model.layers[0]


def stack(thread: int) -> dict[str, Any]:
    """Python's frames of the thread that runs cells, innermost first."""
    frame = sys._current_frames().get(thread)
    lines, frames = [], []
    for each in _frames.outward(frame):
        name, line = each.f_code.co_name, _frames.line_of(each)
        cell = re.fullmatch(r"<cell (\d+)>", each.f_code.co_filename)
        where = f"cell {cell[1]}, line {line}" if cell else _frames.place_of(each).rpartition(", in ")[0]
        lines.append(f"{name}() at {where}")
        frames.append({"function": f"{name}()" if cell else f"{name}() at {where}", "cell": int(cell[1]) if cell else 0,
                       "line": line, "object": ""})
    return {"stack": lines, "frames": frames}


# rlcompleter is not used: it imports readline, which changes how the program's input() reads, and handles signals.
def complete(arguments: dict[str, Any], frame: FrameType) -> dict[str, Any]:
    """Completions of `text` at `offset`, in bytes; candidates replace the bytes from `begin` to `offset`."""
    before = arguments["text"].encode()[: int(arguments["offset"])].decode("utf-8", "ignore")
    begun = re.search(r"\w*$", before)
    word = begun.group() if begun else ""
    owner = before.removesuffix(word)
    if owner.endswith("."):
        found = _OBJECT.search(owner[:-1])
        names: Iterable[str] = _attributes(found.group(), frame) if found else ()
    else:
        names = (*keyword.kwlist, *frame.f_globals, *_scope.locals_of(frame), *frame.f_builtins) if word else ()
    # Names that begin with underscores are offered where one is typed.
    hidden = "_" * (len(word) - len(word.lstrip("_")) + 1) if len(word) < 2 or not word.startswith("__") else "\0"
    texts = sorted({each for each in names if each.startswith(word) and not each.startswith(hidden)})
    return {"begin": len(before.encode()) - len(word.encode()), "candidates": texts[:_MOST_CANDIDATES]}


def _attributes(expression: str, frame: FrameType) -> Iterable[str]:
    try:
        value = eval(compile(expression, "<completed>", "eval"), frame.f_globals, _scope.locals_of(frame))
    except Exception:  # there is no such object
        return ()
    return (*dir(value), *dir(type(value)))


def describe(arguments: dict[str, Any], frame: FrameType) -> dict[str, Any]:
    """What an expression of names, attributes and subscripts is; {} if there is no such thing."""
    text = str(arguments["expression"])
    try:
        value = eval(compile(text, "<inspected>", "eval"), frame.f_globals, _scope.locals_of(frame))
    except Exception:  # there is no such object
        return {}
    lines = [f"{text}: {type(value).__module__}.{type(value).__qualname__}"]
    try:
        lines.append(f"{text}{inspect.signature(value)}")
    except Exception:  # it can't be called; or its class raises
        lines.append(_text_of(value))
    try:
        lines.append(f"defined at {inspect.getsourcefile(value)}, line {inspect.getsourcelines(value)[1]}")
    except Exception:  # as above; or there is no source
        pass
    documentation = inspect.getdoc(value) if callable(value) or inspect.ismodule(value) else None
    if documentation:
        lines += ["", documentation]
    return {"text": "\n".join(lines)}


def _text_of(value: Any) -> str:
    try:
        return _cells.text_of(value)[:2000]
    except Exception as error:  # of the program's class
        return f"its repr() raises {_exceptions.name_of(error)}: {_exceptions.message_of(error)}"


def is_complete(arguments: dict[str, Any], frame: FrameType) -> dict[str, Any]:
    """`status`: complete, incomplete, invalid; `indent`: levels of the line that follows."""
    text = str(arguments["text"])
    try:
        code = codeop.compile_command(text, "<input>", "exec")
    except (SyntaxError, ValueError, OverflowError):
        return {"status": "invalid", "indent": 0}
    last = text.rstrip(" ").rpartition("\n")[2]
    indent = (len(last) - len(last.lstrip(" "))) // 4 + last.rstrip().endswith(":")
    if code is None:
        return {"status": "incomplete", "indent": indent}
    # A compound statement goes on until an empty line.
    open_block = "\n" in text and last.strip() != "" and (last.startswith((" ", "\t")))
    return {"status": "incomplete" if open_block else "complete", "indent": indent if open_block else 0}


ABOUT_NAMES: dict[str, Callable[[dict[str, Any], FrameType], dict[str, Any]]] = {
    "complete": complete, "describe": describe, "is_complete": is_complete,
}
