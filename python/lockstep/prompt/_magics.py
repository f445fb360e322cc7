"""The functions that magics of a prompt call."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Iterable, Mapping, MutableMapping, Sequence

from lockstep.core.errors import ArgumentError
from lockstep.watches import _watches

_nan: _watches.Watch | None = None
initial: set[str] = set()  # names that a session has before its first cell
at_reset: list[Callable[[], None]] = []  # functions that release further objects of cells


def nan_on(*objects: Any) -> None:
    global _nan
    nan_off()
    _nan = _watches.nan_watch(*objects)


def nan_off() -> None:
    global _nan
    if _nan is not None:
        _nan.close()
        _nan = None


def nan_status() -> dict[str, float]:
    if _nan is None:
        raise ArgumentError("nothing is watched: %nan on model optimizer")
    return _nan.status()


def _own(names: Iterable[str]) -> list[str]:
    return sorted(each for each in names if isinstance(each, str) and each not in initial and not each.startswith("_"))


def who(names: Mapping[str, Any]) -> None:
    """Prints what cells have defined."""
    rows = [("name", "type", "")]
    for name in _own(names):
        value = names[name]
        if not inspect.ismodule(value):
            shape = getattr(value, "shape", None)
            rows.append((name, type(value).__qualname__, "" if shape is None else str(list(shape))))
    if len(rows) == 1:
        print("no cell has defined a name yet")
        return
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for row in rows:
        print(f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}".rstrip())


def reset(names: MutableMapping[str, Any], given: Sequence[str]) -> None:
    """Forgets names; all that cells have defined where none is given."""
    for name in given:
        if name not in names:
            raise NameError(f"there is no name {name!r}; %who lists them. Nothing was forgotten")
    for name in given or _own(names):
        names.pop(name, None)
    for forget in at_reset if not given else ():
        forget()
