"""The connection of a stopped rank to its shell, and what a cell writes, which goes there in the order in which it was
written. A thread of its own reads what the shell sends, and passes the output on as far as the shell has room."""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
from typing import Any, Callable, Sequence

from lockstep.core import _library
from lockstep.prompt import _capture, _zmtp

_CHUNK = 1 << 16
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode  # json.dumps would make an encoder for each message


class Shell:
    """`lock` is held while a message is sent: an exception on a thread that holds it would cut the message short."""

    def __init__(self, hub: str, identity: str) -> None:
        """Connects to the socket file `hub`. Raises OSError."""
        with contextlib.ExitStack() as opened:
            self._connection = _zmtp.Connection(hub, identity)
            opened.callback(self._connection.close)
            self._capture = _capture.Capture()
            opened.callback(self._capture.close)
            self._wake_reader, self._wake_writer = os.pipe()
            opened.pop_all()
        # Guards what follows, and sending. It is no Condition: an interrupt of a cell could come into its methods, after
        # one has taken the lock and before the caller knows it.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)  # the credit, or the end
        self.protocol: int = _library.constant("protocol")
        self._credit: int = _library.constant("output_window")
        self._ended = ""  # "lost": the shell is gone; "closed": the program goes on
        self._closing = False
        self._is_closed = False
        self._cell = 0  # whose output is captured, or was
        self._thread: threading.Thread | None = None

    def start(self, take: Callable[[dict[str, Any], list[bytes]], None], lost: Callable[[], None]) -> None:
        """Starts the thread that calls `take` with each message and its frames, and `lost` once if the shell is gone.
        An exception of `take` ends the connection. Raises OSError."""
        self._take, self._lost = take, lost
        thread = threading.Thread(target=self._serve, name="lockstep-prompt", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the limit of the user's processes
            raise OSError(str(error)) from None
        self._thread = thread

    def close(self) -> None:
        """Ends the connection, since the program goes on. Takes what child processes of cells have written since."""
        with self.lock:
            self._ended = self._ended or "closed"
            self._closing = True
        if self._thread is not None:
            os.write(self._wake_writer, b"e")
            self._thread.join()
        self._write_through()
        self._close()

    def leave_in_child(self) -> None:
        """Drops the connection in the child of a fork, which has no thread that serves it."""
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._ended = "lost"
        self._capture.leave_in_child()
        self._close()

    def _close(self) -> None:
        with self.lock:  # another thread may be sending
            self._is_closed = True
            self._connection.close()
        self._capture.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    # ---- Output of cells ---------------------------------------------------------------------------------------------

    def begin_output(self, cell: int) -> None:
        """Captures what the process writes from here on as output of this cell. Raises OSError."""
        with self.lock:
            self._cell = cell
        self._capture.begin()

    def end_output(self) -> None:
        try:
            _capture.flush()
        finally:
            with self.lock:
                self._capture.end()

    # ---- Sending -----------------------------------------------------------------------------------------------------

    def send(self, message: dict[str, Any], *frames: bytes) -> None:
        """Sends a message. Does nothing if the shell is gone."""
        self._send([self._header(message), *frames])

    def _header(self, message: dict[str, Any]) -> bytes:
        # Half of a surrogate pair is no text: it becomes a question mark.
        return _encode({"v": self.protocol, **message}).encode("utf-8", "replace")

    def _send(self, *messages: Sequence[bytes]) -> None:
        with self.lock:
            if self._ended == "lost" or self._is_closed:
                return
            try:
                self._connection.send(*messages)
            except OSError:
                self._lose()
            except BaseException:  # a signal handler of the program: half a message may have gone
                self._lose()
                raise

    def post(self, *messages: dict[str, Any]) -> None:
        """Sends messages after all that was written before them."""
        _capture.flush()
        with self.lock:
            left = self._capture.unread()  # and not what a child process goes on writing
            while left > 0:
                if self._credit <= 0 and not self._ended:
                    self._changed.wait()
                elif (passed := self._pass_on()) > 0:
                    left -= passed
                else:
                    break
            self._send(*([self._header(each)] for each in messages))

    def _pass_on(self) -> int:
        """Passes output on, as far as there is credit. Returns how many bytes. Under the lock."""
        total = 0
        for index, reader in enumerate(self._capture.readers):
            if self._credit <= 0 and not self._ended:
                break
            try:
                data = os.read(reader, _CHUNK if self._ended else min(_CHUNK, max(1, self._credit)))
            except BlockingIOError:
                continue
            if not data:
                continue
            total += len(data)
            self._credit -= len(data)
            if not self._ended:
                self.send({"kind": "output", "cell": self._cell, "stream": _capture.STREAMS[index]}, data)
            else:  # nobody reads it there; it is the program's
                self._capture.write_through(index, data)
        return total

    def _write_through(self) -> None:
        left = self._capture.unread()
        while left > 0 and (passed := self._pass_on()) > 0:
            left -= passed

    def _lose(self) -> None:
        """Notes that the shell is gone. Called under the lock."""
        if self._ended:
            return
        self._ended = "lost"
        self._lost()
        self._changed.notify_all()
        os.write(self._wake_writer, b"l")  # from here on the thread of the connection empties the pipes

    # ---- The thread of the connection --------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Serves the connection until close(). Without a shell, what a cell writes goes where the program's output
        goes, so that the cell does not wait for room in the pipes."""
        while True:
            poll = select.poll()
            poll.register(self._wake_reader, select.POLLIN)
            with self.lock:
                if self._closing:
                    return
                is_connected = not self._ended
                if self._credit > 0 or not is_connected:
                    for reader in self._capture.readers:
                        poll.register(reader, select.POLLIN)
            if is_connected:
                poll.register(self._connection.fileno(), select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._wake_reader in ready:
                os.read(self._wake_reader, 64)
            try:
                if is_connected and self._connection.fileno() in ready:
                    for frames in self._connection.receive():
                        self._receive(json.loads(frames[0]), frames[1:])
            except BaseException:  # the connection has ended, or carries what is no message of a shell
                with self.lock:
                    self._lose()
            if not ready.isdisjoint(self._capture.readers):  # else the lock is left to the thread that runs the cell
                with self.lock:
                    if self._closing:
                        return
                    self._pass_on()

    def _receive(self, message: dict[str, Any], frames: list[bytes]) -> None:
        if message.get("v") != self.protocol:
            self.send({"kind": "not_ready", "message": f"the shell speaks version {message.get('v')} of the protocol, "
                       f"and this package version {self.protocol}: install the package of the same build"})
        elif message.get("kind") == "credit":
            with self.lock:
                self._credit += int(message["bytes"])
                self._changed.notify_all()
        else:
            self._take(message, frames)
