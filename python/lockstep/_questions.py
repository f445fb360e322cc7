"""What a shell asks a rank while it is stopped: stacks, completions, what a name is, whether a text is a complete
cell. Answered on the thread of the connection."""

from __future__ import annotations

import codeop
import inspect
import re
import rlcompleter
import sys
import warnings
from types import FrameType
from typing import Any, Callable

from lockstep import _cells


def stack(thread: int) -> dict[str, Any]:
    """Python's frames of the thread that runs cells, innermost first."""
    frame = sys._current_frames().get(thread)
    lines, frames = [], []
    for each in _cells.outward(frame):
        name, line = each.f_code.co_name, each.f_lineno
        cell = re.fullmatch(r"<cell (\d+)>", each.f_code.co_filename)
        where = f"cell {cell[1]}, line {line}" if cell else _cells.place_of(each).rpartition(", in ")[0]
        lines.append(f"{name}() at {where}")
        frames.append({"function": f"{name}()" if cell else f"{name}() at {where}", "cell": int(cell[1]) if cell else 0,
                       "line": line, "object": ""})
    return {"stack": lines, "frames": frames}


def complete(arguments: dict[str, Any], frame: FrameType) -> dict[str, Any]:
    """`text` and `offset` in bytes; candidates replace the bytes from `begin` to `offset`."""
    before = arguments["text"].encode()[: int(arguments["offset"])].decode("utf-8", "ignore")
    found = re.search(r"[\w.]*$", before)
    word = found.group() if found else ""
    names = {**frame.f_globals, **frame.f_locals}
    completer = rlcompleter.Completer(names)
    candidates: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of attributes that are looked at
        while word and len(candidates) < 1000 and (each := completer.complete(word, len(candidates))) is not None:
            candidates.append(each)
    texts = sorted({each.rstrip("() ") for each in candidates})
    return {"begin": len(before.encode()) - len(word.encode()), "candidates": texts}


def describe(arguments: dict[str, Any], frame: FrameType) -> dict[str, Any]:
    """What an expression of names, attributes and subscripts is; {} if there is no such thing."""
    text = str(arguments["expression"])
    try:
        value = eval(compile(text, "<inspected>", "eval"), frame.f_globals, frame.f_locals)
    except Exception:
        return {}
    lines = [f"{text}: {type(value).__module__}.{type(value).__qualname__}"]
    try:
        lines.append(f"{text}{inspect.signature(value)}")
    except (TypeError, ValueError):
        lines.append(_cells.text_of(value)[:2000])
    try:
        lines.append(f"defined at {inspect.getsourcefile(value)}, line {inspect.getsourcelines(value)[1]}")
    except (TypeError, OSError):
        pass
    documentation = inspect.getdoc(value) if callable(value) or inspect.ismodule(value) else None
    if documentation:
        lines += ["", documentation]
    return {"text": "\n".join(lines)}


def is_complete(arguments: dict[str, Any], frame: FrameType) -> dict[str, Any]:
    """`status`: complete, incomplete, invalid; `indent`: levels of the line that follows."""
    text = str(arguments["text"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
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
