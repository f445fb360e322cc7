"""One connection to the socket of a shell, in ZeroMQ's protocol (ZMTP 3.0, https://rfc.zeromq.org/spec/23): the part of
it that a DEALER needs towards a ROUTER on a socket file, and a SUB towards a PUB. With it the package needs no library
of ZeroMQ."""

from __future__ import annotations

import socket
import struct
from typing import Sequence

_MORE, _LONG, _COMMAND = 1, 2, 4
_GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
_HANDSHAKE_SECONDS = 10.0


class ConnectionEnded(ConnectionError):
    """The other side is gone, or does not speak the protocol."""


class Connection:
    """Messages are lists of frames. send() may be called by several threads if they take turns, receive() by one."""

    def __init__(self, path: str, identity: str, kind: bytes = b"DEALER") -> None:
        """Connects to the socket file `path` under `identity`. `kind`: DEALER, or SUB, which gets all messages of a
        PUB. Raises OSError."""
        self._received = bytearray()
        self._frames: list[bytes] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(_HANDSHAKE_SECONDS)
            self._socket.connect(path)
            self._shake_hands(identity.encode(), kind)
            if kind == b"SUB":
                self.send([b"\x01"])
            self._socket.settimeout(None)
        except BaseException:
            self._socket.close()
            raise

    def _shake_hands(self, identity: bytes, kind: bytes) -> None:
        self._socket.sendall(_GREETING)
        greeting = self._read(len(_GREETING))
        if greeting[0] != 0xFF or greeting[9] != 0x7F or greeting[10] < 3:
            raise ConnectionEnded("what answers speaks another version of ZeroMQ's protocol")
        body = b"\x05READY"
        for name, value in ((b"Socket-Type", kind), (b"Identity", identity)):
            body += bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
        self._socket.sendall(_frame(_COMMAND, body))
        flags, ready = self._read_frame()
        if not flags & _COMMAND or not ready.startswith(b"\x05READY"):
            raise ConnectionEnded(f"the shell refuses the connection: {ready!r}")

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, *messages: Sequence[bytes]) -> None:
        """Sends all messages at once, so that the other side wakes up once. Raises OSError if it is gone."""
        self._socket.sendall(b"".join(_frame(_MORE if i < len(frames) - 1 else 0, each)
                                      for frames in messages for i, each in enumerate(frames)))

    def receive(self) -> list[list[bytes]]:
        """Reads once, and waits until there is something. Returns the messages that are complete now. Raises OSError if
        the other side is gone."""
        self._take()
        return self.complete()

    def complete(self) -> list[list[bytes]]:
        """The messages that were read before and are complete."""
        messages = []
        while (frame := self._next_frame()) is not None:
            flags, body = frame
            if flags & _COMMAND:
                continue
            self._frames.append(body)
            if not flags & _MORE:
                messages.append(self._frames)
                self._frames = []
        return messages

    def close(self) -> None:
        self._socket.close()

    def _take(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionEnded("the shell has closed the connection")
        self._received += data

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            self._take()
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def _read_frame(self) -> tuple[int, bytes]:
        while (frame := self._next_frame()) is None:
            self._take()
        return frame

    def _next_frame(self) -> tuple[int, bytes] | None:
        data = self._received
        head = 9 if data and data[0] & _LONG else 2
        if len(data) < head:
            return None
        size = struct.unpack_from(">Q", data, 1)[0] if head == 9 else data[1]
        if len(data) < head + size:
            return None
        flags, body = data[0], bytes(data[head : head + size])
        del data[: head + size]
        return flags, body


def _frame(flags: int, body: bytes) -> bytes:
    if len(body) > 255:
        return bytes([flags | _LONG]) + struct.pack(">Q", len(body)) + body
    return bytes([flags, len(body)]) + body
