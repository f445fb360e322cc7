"""A shell for one rank in this process: it speaks the protocol of docs/protocol.md to a prompt of the package, so that
a test of the prompt needs no job."""

import json
import os
import socket
import sys
import tempfile
import threading

from lockstep.prompt import _frames, _invitations, _prompt, _zmtp

ROUTER = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER"


class FakeShell:
    """Used by a script in a thread of its own, while the prompt runs on the thread that stops."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="ls", dir="/tmp")  # a socket's path is short
        self.hub = os.path.join(self.folder.name, "hub")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.hub)
        self.listener.listen()
        self.cells = 0
        self.received = []  # messages, and the frames of each
        self.errors = []

    def accept(self):
        self.connection = connection = _zmtp.Connection.__new__(_zmtp.Connection)
        connection._received, connection._frames = bytearray(), []
        connection._socket, _ = self.listener.accept()
        connection._socket.sendall(_zmtp._GREETING)
        connection._read(64)
        connection._socket.sendall(_zmtp._frame(_zmtp._COMMAND, ROUTER))
        connection._read_frame()
        self.version = self.wait_for("ready")["v"]

    def send(self, kind, **fields):
        self.connection.send([json.dumps({"v": self.version, "kind": kind, **fields}).encode()])

    def wait_for(self, kind, **fields):
        """The next message of this kind with these fields. What comes before it stays in `received`."""
        while True:
            for frames in self.connection.complete() or self.connection.receive():
                message = json.loads(frames[0])
                self.received.append((message, frames[1:]))
                if message["kind"] == "output":
                    self.send("credit", bytes=len(frames[1]))
            for message, _ in self.received:
                if message["kind"] == kind and all(message.get(key) == value for key, value in fields.items()):
                    return message

    def begin(self, text, **arguments):
        """A cell of Python. Returns its number."""
        self.cells += 1
        arguments = {"text": text, "number": self.cells, **arguments}
        self.send("builtin", cell=self.cells, function={"kind": "python", **arguments})
        return self.cells

    def run(self, text, **arguments):
        """Its message Done."""
        return self.wait_for("done", cell=self.begin(text, **arguments))

    def value(self, text, **arguments):
        """The text of its value, or its error."""
        return self.value_of(self.begin(text, **arguments))

    def value_of(self, cell):
        done = self.wait_for("done", cell=cell)
        found = [message["text"] for message, _ in self.received if (message["kind"], message.get("cell")) ==
                 ("value", cell)]
        return found[0] if found else done.get("error")

    def output(self, cell):
        return b"".join(frames[0] for message, frames in self.received
                        if (message["kind"], message.get("cell")) == ("output", cell)).decode()

    def ask(self, what, **arguments):
        self.cells += 1
        self.send("query", id=self.cells, question={"kind": what, **arguments})
        return self.wait_for("reply", id=self.cells)["body"]

    def serve(self, script, frame=None):
        """Stops in `frame`, the caller's by default, and has `script` type into the prompt; then lets it go on. Returns
        how the prompt ended. Raises what the script raises."""
        frames = _frames.Frames(frame or sys._getframe(1))

        def type_cells():
            try:
                self.accept()
                script(self)
            except BaseException as error:
                self.errors.append(error)
            finally:
                if not getattr(self, "gone", False):
                    self.send("shutdown")

        typing = threading.Thread(target=type_cells)
        typing.start()
        try:
            return _prompt.Prompt(_invitations.Invitation(self.hub, "rank-0"), 0, frames).run()
        finally:
            typing.join()
            frames.release()
            self.connection.close()
            self.listener.close()
            self.folder.cleanup()
            if self.errors:
                raise self.errors[0]

    def leave(self):
        """As a shell that is killed."""
        self.gone = True
        self.connection.close()
