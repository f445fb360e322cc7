"""The frames of a stopped thread, and which of them is selected."""

from __future__ import annotations

import linecache
import os
from types import FrameType
from typing import Iterator

from lockstep.core import _caller, _library
from lockstep.prompt import _scope


class Frames:
    """The frames from the caller of `breakpoint` to the outermost one."""

    def __init__(self, frame: FrameType) -> None:
        self.all = list(outward(frame)) or [frame]
        self.index = 0
        self._seen: set[int] = set()  # whose locals may have been read

    @property
    def selected(self) -> FrameType:
        self._seen.add(self.index)
        return self.all[self.index]

    def move(self, count: int) -> None:
        """Selects a frame that is `count` frames nearer to the outermost one; the last there is, if there are less."""
        self.index = max(0, min(len(self.all) - 1, self.index + count))

    def describe(self) -> str:
        """The frames as pdb's `where` shows them: innermost last, with `>` at the one that is selected."""
        lines = []
        for index in range(len(self.all) - 1, -1, -1):
            frame = self.all[index]
            lines.append(f"{'>' if index == self.index else ' '} {place_of(frame)}")
            source = linecache.getline(frame.f_code.co_filename, line_of(frame), frame.f_globals).strip()
            if source:
                lines.append(f"      {source}")
        return "\n".join(lines)

    def release(self) -> None:
        """Releases everything of the program."""
        for index in self._seen:
            _scope.forget_values(self.all[index])
        self.all.clear()
        self._seen.clear()


def line_of(frame: FrameType) -> int:
    """The line that the frame is at; 0 between two lines, where Python knows none."""
    return frame.f_lineno or 0


def is_ours(file: str) -> bool:
    return file.startswith(_library.FOLDER.as_posix() + os.sep)


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        name = frame.f_code.co_filename
        if not is_ours(name) and not name.startswith("<frozen "):
            yield frame
        frame = frame.f_back


def place_of(frame: FrameType) -> str:
    """"train.py, line 31, in main"."""
    return f"{_caller.shown_file(frame.f_code.co_filename)}, line {line_of(frame)}, in {frame.f_code.co_name}"
