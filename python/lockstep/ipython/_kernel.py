"""A session of Python ranks: the program `lockstep` as a kernel of Jupyter (https://jupyter-client.readthedocs.io,
"Messaging in Jupyter"), and the part of a client that magics need."""

from __future__ import annotations

import hashlib
import hmac
import importlib.util
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from typing import Any, Callable, Sequence

from lockstep.core import _library
from lockstep.core.errors import LockstepError
from lockstep.prompt import _zmtp

_DELIMITER = b"<IDS|MSG>"
_CHANNELS = {"shell": b"DEALER", "control": b"DEALER", "stdin": b"DEALER", "iopub": b"SUB"}
_END_SECONDS = 10.0


def find_program() -> str:
    """The program `lockstep`. Raises LockstepError."""
    named = os.environ.get("LOCKSTEP_BIN")
    folders = [named] if named else [str(_library.FOLDER / "bin"), str(_library.FOLDER.parent.parent / "bin")]
    for folder in folders:
        path = pathlib.Path(folder, "lockstep")
        if os.access(path, os.X_OK):
            return str(path)
    found = shutil.which("lockstep")
    if found is None:
        raise LockstepError("the program lockstep is not found: it is neither in LOCKSTEP_BIN nor in PATH "
                            "(docs/install.md)")
    return found


def environment_of(program: str) -> dict[str, str]:
    """Returns the environment for the program: this interpreter, and the folder of its torch. A wheel's program looks for
    torch beside the package only."""
    environment = {**os.environ, "JPY_PARENT_PID": str(os.getpid()), "LOCKSTEP_PYTHON": sys.executable}
    torch = importlib.util.find_spec("torch")
    if torch and torch.origin and pathlib.Path(program).parent == _library.FOLDER / "bin":
        environment.setdefault("LOCKSTEP_LIBTORCH", os.path.dirname(torch.origin))
    return environment


class Kernel:
    """One session. `options`: those of `lockstep --python`."""

    def __init__(self, options: Sequence[str]) -> None:
        """Raises LockstepError with what the program has written."""
        self._folder = tempfile.TemporaryDirectory(prefix="ls", dir="/tmp")  # a socket's path is short
        self._key = uuid.uuid4().hex
        self._session = uuid.uuid4().hex
        path = os.path.join(self._folder.name, "kernel")
        ports = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}
        connection = {f"{name}_port": port for name, port in ports.items()}
        connection_file = pathlib.Path(self._folder.name, "connection.json")
        connection_file.write_text(json.dumps({
            **connection, "transport": "ipc", "ip": path, "key": self._key, "signature_scheme": "hmac-sha256"}))
        self._output = open(os.path.join(self._folder.name, "output"), "w+")  # noqa: SIM115
        self._program = find_program()
        self._process = subprocess.Popen(
            [self._program, "kernel", "run", "-f", str(connection_file), *options], stdin=subprocess.DEVNULL,
            stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True,
            env=environment_of(self._program))
        try:
            self._channels = {name: self._connect(f"{path}-{ports[name]}", kind) for name, kind in _CHANNELS.items()}
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _connect(self, path: str, kind: bytes) -> _zmtp.Connection:
        while True:
            try:
                return _zmtp.Connection(path, f"{self._session}", kind)
            except (FileNotFoundError, ConnectionRefusedError):
                if self._process.poll() is not None:
                    raise LockstepError(f"the session could not start: {self._written()}") from None
                time.sleep(0.005)  # a file appears when the program listens

    def _written(self) -> str:
        self._output.seek(0)
        return self._output.read().strip() or f"{self._program} ended with code {self._process.returncode}"

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    # ---- Messages ----------------------------------------------------------------------------------------------------

    def _send(self, channel: str, kind: str, content: dict[str, Any]) -> str:
        number = uuid.uuid4().hex
        header = {"msg_id": number, "session": self._session, "username": "", "date": "", "msg_type": kind,
                  "version": "5.3"}
        parts = [json.dumps(each).encode() for each in (header, {}, {}, content)]
        self._channels[channel].send([_DELIMITER, self._sign(parts), *parts])
        return number

    def _sign(self, parts: Sequence[bytes]) -> bytes:
        return hmac.new(self._key.encode(), b"".join(parts), hashlib.sha256).hexdigest().encode()

    def _read(self, frames: list[bytes]) -> dict[str, Any]:
        begin = frames.index(_DELIMITER) + 2
        if not hmac.compare_digest(frames[begin - 1], self._sign(frames[begin : begin + 4])):
            raise LockstepError("a message of the session has a wrong signature")
        header, parent, _, content = (json.loads(each) for each in frames[begin : begin + 4])
        return {"type": header["msg_type"], "parent": parent.get("msg_id"), "content": content}

    def execute(self, code: str, take: Callable[[str, dict[str, Any]], None],
                read_line: Callable[[str], str] | None = None) -> dict[str, Any]:
        """Runs a cell, and returns the content of its reply. `take` gets the type and the content of what is shown
        meanwhile. `read_line`: asks the person for a line, where one can be asked; may raise EOFError.
        KeyboardInterrupt interrupts the cell. Raises LockstepError where the session has ended."""
        request = self._send("shell", "execute_request", {"code": code, "silent": False, "store_history": True,
                                                          "allow_stdin": read_line is not None,
                                                          "stop_on_error": False})

        def take_or_answer(kind: str, content: dict[str, Any]) -> None:
            if kind != "input_request" or read_line is None:
                return take(kind, content)
            try:
                self._send("stdin", "input_reply", {"value": read_line(content["prompt"])})
            except EOFError:
                self._send("control", "interrupt_request", {})

        return self._wait(request, take_or_answer)

    def complete(self, code: str, cursor: int) -> dict[str, Any]:
        request = self._send("shell", "complete_request", {"code": code, "cursor_pos": cursor})
        return self._wait(request, lambda kind, content: None)

    def _wait(self, request: str, take: Callable[[str, dict[str, Any]], None]) -> dict[str, Any]:
        reply: dict[str, Any] | None = None
        is_over = False
        while reply is None or not is_over:
            try:
                for message in self._receive():
                    if message["parent"] != request:
                        continue
                    if message["type"].endswith("_reply"):
                        reply = message["content"]
                    elif message["type"] == "status":
                        is_over = is_over or message["content"]["execution_state"] == "idle"
                    else:
                        take(message["type"], message["content"])
            except KeyboardInterrupt:
                self._send("control", "interrupt_request", {})
        return reply

    def _receive(self) -> list[dict[str, Any]]:
        poll = select.poll()
        for connection in self._channels.values():
            poll.register(connection.fileno(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll()}
        messages = []
        for connection in self._channels.values():
            if connection.fileno() in ready:
                try:
                    messages += [self._read(frames) for frames in connection.receive()]
                except OSError:
                    self._process.wait()
                    raise LockstepError(f"the session has ended: {self._written()}") from None
        return messages

    def close(self) -> None:
        """Ends the session."""
        if self.is_alive:
            try:
                self._send("control", "shutdown_request", {"restart": False})
                self._process.wait(_END_SECONDS)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()
        for connection in self._channels.values():
            connection.close()
        self._output.close()
        self._folder.cleanup()
