"""Captures what a process writes while a cell runs. Descriptors 1 and 2 are pipes meanwhile, so the output of libraries
and child processes is captured, too."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import io
import os
import select
import sys
import termios
from typing import Any

from lockstep.prompt import _streams

_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
STREAMS = ("stdout", "stderr")
_c_library = ctypes.CDLL(None)
_c_streams = [ctypes.c_void_p.in_dll(_c_library, name) for name in STREAMS]  # the variables: what they point to may change


def _of_python() -> list[Any]:
    return [getattr(sys, name, None) for name in STREAMS]  # a program may delete them


def flush() -> None:
    """Flushes the streams of Python and of the C library."""
    for stream in _of_python():
        try:
            stream.flush()
        except Exception:  # None, closed, or of a class of the program's own
            pass
    # Not all streams are flushed: a thread that reads the standard input holds that one.
    for each in _c_streams:
        _c_library.fflush(each)


def write(text: str) -> None:
    """Writes to the standard output, also where the program has put another object into sys.stdout."""
    flush()
    data = text.encode("utf-8", "replace")
    while data:
        data = data[os.write(1, data) :]


def write_error(text: str) -> None:
    """Writes to the program's sys.stderr; nothing where that is None, or closed."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:  # as in flush()
        pass


channels: list[tuple[int, int]] | None = None
"""In a rank of a session: the ends of two pipes that the shell has made, to read and to write. It reads what is left in
them when the rank has died, and they take all that the process writes, also between cells."""


class Capture:
    """Two pipes, one for each of STREAMS. What is left in a pipe at the end is lost, except in pipes of `channels`:
    read it before."""

    def __init__(self) -> None:
        self.is_kept = channels is not None  # from the first cell on
        self.readers: list[int] = []
        self._writers: list[int] = []
        self._saved: list[int] = []
        self._buffered: list[io.TextIOWrapper] = []
        self._streams = _streams.Streams()
        try:
            for index in range(len(STREAMS)):
                self._take_pipe(*(os.pipe() if channels is None else channels[index]))
        except BaseException:  # no descriptor is left
            self.close()
            raise

    def _take_pipe(self, reader: int, writer: int) -> None:
        self.readers.append(reader)
        self._writers.append(writer)
        os.set_blocking(reader, False)
        try:
            fcntl.fcntl(writer, _F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:  # the limit of the user is reached: a small one works, too
            pass

    def begin(self) -> None:
        """Makes the process write into the pipes from here on."""
        flush()
        if self._saved and self.is_kept:
            return
        # What is printed shows at once, as in a terminal.
        for stream in _of_python():
            if isinstance(stream, io.TextIOWrapper) and not stream.closed and not stream.line_buffering:
                stream.reconfigure(line_buffering=True)
                self._buffered.append(stream)
        for descriptor, writer in enumerate(self._writers, start=1):
            try:
                self._saved.append(os.dup(descriptor))
            except OSError as error:
                if error.errno != errno.EBADF:  # as when no descriptor is left
                    raise
                self._saved.append(-1)  # the program has closed it
            os.dup2(writer, descriptor)
        self._streams.begin()

    def unread(self) -> int:
        """How many bytes are in the pipes."""
        total = 0
        for reader in self.readers:
            answer = fcntl.ioctl(reader, termios.FIONREAD, bytes(4))
            total += int.from_bytes(answer, sys.byteorder)
        return total

    def write_through(self, index: int, data: bytes) -> None:
        """Writes where STREAMS[index] of the program goes without the capture. What can't be written is lost."""
        descriptor = self._saved[index] if index < len(self._saved) else index + 1
        while data and descriptor >= 0:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                poll = select.poll()
                poll.register(descriptor, select.POLLOUT)
                poll.poll()
            except OSError:
                return

    def end(self) -> None:
        """Gives the descriptors back. Flush before; a begin() that has failed half-way is undone, too."""
        if self.is_kept:
            return
        try:
            self._streams.end()
        finally:
            self._give_back()
        for stream in self._buffered:
            try:
                stream.reconfigure(line_buffering=False)
            except ValueError:  # the cell has closed it
                pass
        self._buffered.clear()

    def leave_in_child(self) -> None:
        """Ends the capture in the child of a fork: its output is not the cell's, and nobody may read the pipes by the
        time it ends. In a session the output is the rank's."""
        if not self.is_kept:
            self._streams.end()
            self._give_back()
        self.close()

    def _give_back(self) -> None:
        for descriptor, saved in enumerate(self._saved, start=1):
            if saved >= 0:
                os.dup2(saved, descriptor)
                os.close(saved)
            else:
                os.close(descriptor)
        self._saved.clear()

    def close(self) -> None:
        for descriptor in self.readers + self._writers:
            os.close(descriptor)
        self.readers.clear()
        self._writers.clear()
