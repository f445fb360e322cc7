"""What a process writes while a cell runs: descriptors 1 and 2 are pipes meanwhile, so that what libraries and child
processes write is captured, too."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import io
import os
import select
import sys

_F_SETPIPE_SZ = 1031
PIPE_BYTES = 1 << 20
STREAMS = ("stdout", "stderr")


def flush() -> None:
    """Hands on what Python and the C library hold back."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # None, closed, or of a class of the program's own
            pass
    ctypes.CDLL(None).fflush(None)


class Capture:
    """Two pipes, one for each of STREAMS. What is left in a pipe at the end is lost: read it before."""

    def __init__(self) -> None:
        self.readers: list[int] = []
        self._writers: list[int] = []
        self._saved: list[int] = []
        self._buffered: list[io.TextIOWrapper] = []
        for _ in STREAMS:
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            try:
                fcntl.fcntl(writer, _F_SETPIPE_SZ, PIPE_BYTES)
            except OSError:  # the limit of the user is reached: a small one works, too
                pass
            self.readers.append(reader)
            self._writers.append(writer)

    def begin(self) -> None:
        """From here on the process writes into the pipes."""
        flush()
        # What is printed shows at once, as in a terminal.
        self._buffered = [
            each for each in (sys.stdout, sys.stderr) if isinstance(each, io.TextIOWrapper) and not each.line_buffering
        ]
        for stream in self._buffered:
            stream.reconfigure(line_buffering=True)
        for descriptor, writer in enumerate(self._writers, start=1):
            try:
                self._saved.append(os.dup(descriptor))
            except OSError as error:
                if error.errno != errno.EBADF:  # as when no descriptor is left
                    raise
                self._saved.append(-1)  # the program has closed it
            os.dup2(writer, descriptor)

    def write_through(self, index: int, data: bytes) -> None:
        """Writes where STREAMS[index] of the program goes without the capture. What can't be written is lost, as there."""
        descriptor = self._saved[index] if index < len(self._saved) else index + 1
        while data and descriptor >= 0:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                select.select([], [descriptor], [])
            except OSError:
                return

    def end(self) -> None:
        """Gives the descriptors back. Flush before; a begin() that has failed half-way is undone, too."""
        for descriptor, saved in enumerate(self._saved, start=1):
            if saved < 0:
                os.close(descriptor)
                continue
            os.dup2(saved, descriptor)
            os.close(saved)
        self._saved.clear()
        for stream in self._buffered:
            try:
                stream.reconfigure(line_buffering=False)
            except ValueError:  # the cell has closed it
                pass
        self._buffered.clear()

    def leave_in_child(self) -> None:
        """In the child of a fork: its output is not the cell's, and nobody may read it by the time it ends."""
        for descriptor, saved in enumerate(self._saved, start=1):
            if saved >= 0:
                os.dup2(saved, descriptor)
                os.close(saved)
            else:
                os.close(descriptor)
        self._saved.clear()
        self.close()

    def close(self) -> None:
        for descriptor in self.readers + self._writers:
            os.close(descriptor)
        self.readers.clear()
        self._writers.clear()
