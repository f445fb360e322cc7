"""A rank that is stopped and serves the prompt of a shell: it speaks the protocol of a worker (docs/protocol.md) to the
shell's hub. The thread that has stopped runs the cells; a thread of its own reads what the shell sends, answers
questions, and sends what the cells write."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
import weakref
from types import FrameType
from typing import Any, Callable

import torch

from lockstep import _capture, _cells, _cpp_cells, _library, _publish, _questions, _zmtp
from lockstep.report import Finding, Report

_CHUNK = 1 << 16


@dataclasses.dataclass(frozen=True)
class Invitation:
    """How a shell is reached."""

    hub: str  # the path of its socket
    identity: str


class Ended(Exception):
    """The prompt is over: the program goes on."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how  # continue: the shell says so; lost: the shell is gone


class Prompt:
    """One connection to a shell, on the thread that has stopped. Raises OSError when the shell can't be reached."""

    def __init__(self, invitation: Invitation, rank: int, frames: _cells.Frames) -> None:
        self._process = os.getpid()
        self._connection = _zmtp.Connection(invitation.hub, invitation.identity)
        self._rank = rank
        self._frames = frames
        self._cpp = _cpp_cells.CppCells(invitation.hub, rank, lambda: frames.selected, self._post)
        self._tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._thread_id = threading.get_ident()
        self._lock = threading.Condition()  # of what follows, and of sending
        self._protocol: int = _library.constant("protocol")
        self._credit: int = _library.constant("output_window")
        self._ended: str | None = None
        self._closing = False
        self._cell = 0  # that runs, or was the last
        self._output_cell = 0
        self._running = False
        self._runs_cpp = False
        self._since = time.monotonic()
        self._interrupts: set[int] = set()  # cells to interrupt
        self.detached = False
        self._capture = _capture.Capture()
        self._wake_reader, self._wake_writer = os.pipe()
        self._interrupter = _Interrupter()
        self._send({
            "kind": "hello", "rank": rank, "pid": os.getpid(), "host": socket.gethostname(), "device": _device(),
            "versions": {"protocol": self._protocol, "lockstep": _library.constant("lockstep"),
                         "libtorch": str(torch.__version__), "compiler": ""},
            "where": _cells.place_of(frames.selected),
        })
        self._send({"kind": "ready", "threads": torch.get_num_threads()})
        _open.add(self)
        self._io = threading.Thread(target=self._serve_connection, name="lockstep-prompt", daemon=True)
        self._io.start()

    # ---- The thread that has stopped ---------------------------------------------------------------------------------

    def run(self) -> str:
        """Runs cells until the shell lets the program go on ("continue"), or is gone ("lost")."""
        try:
            with self._interrupter:
                while True:
                    try:
                        self._handle(self._tasks.get())
                    except Ended as end:
                        return end.how
        finally:
            self._close()

    def _handle(self, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "shutdown":
            raise Ended("continue")
        if kind == "lost":
            raise Ended("lost")
        if kind == "configure":
            self._configure(message)
        elif kind == "builtin":
            self._run_builtin(message)
        elif kind == "regroup":
            self._send({"kind": "regrouped", "generation": message["generation"], "ok": True})
        elif kind == "prelude":
            self._cpp.use_prelude(message["path"])
        elif kind == "load":
            self._send(self._cpp.load(message, message.pop("frames")))
        elif kind == "drop":
            self._cpp.drop(int(message["cell"]))
        elif kind == "run":
            self._run_cell(int(message["cell"]), int(message["number"] or message["cell"]),
                           lambda: self._run_cpp(message))

    def _configure(self, message: dict[str, Any]) -> None:
        os.environ.update(message.get("environment") or {})
        if message.get("directory"):
            try:
                os.chdir(message["directory"])
            except OSError as error:
                print(f"rank {self._rank} can't change to {message['directory']}: {error.strerror}", file=sys.stderr)

    def _run_builtin(self, message: dict[str, Any]) -> None:
        cell, arguments = message["cell"], message.get("arguments") or {}
        functions: dict[str, Callable[[int, dict[str, Any]], None]] = {
            "python": self._run_python, "frame": self._select_frame, "detach": self._detach,
        }

        def run() -> dict[str, Any]:
            if message["name"] not in functions:
                raise NotImplementedError(f"a rank of a Python job can't do '{message['name']}'")
            functions[message["name"]](cell, arguments)
            return {"steps_done": 1}

        self._run_cell(cell, int(arguments.get("number") or cell), run)

    def _run_cell(self, cell: int, number: int, run: Callable[[], dict[str, Any]]) -> None:
        """Runs a cell. `run` returns fields of the message Done, or raises."""
        done: dict[str, Any] = {"kind": "done", "cell": cell, "status": "ok", "steps_done": 0}
        start = time.perf_counter()
        with self._lock:
            self._cell = self._output_cell = cell
            self._running = True
            self._since = time.monotonic()
        try:
            try:
                self._capture.begin()
                _publish.sink = self._send_findings
                self._interrupter.armed = True
                self._check_interrupt(cell)
                done.update(run())
                if done["status"] == "ok":
                    self._check_interrupt(cell)
            finally:
                self._interrupter.armed = False
        except BaseException as error:  # an exception ends the cell, not the rank
            done["status"] = "interrupted" if cell in self._interrupts else "error"
            done["error"] = _cells.describe_error(error, number)
            if done["status"] == "interrupted":
                done["error"]["root_cause"] = False
        finally:  # also where the program's own handler of Ctrl-C raises in between
            try:
                with self._lock:  # an interrupt that comes later is for nobody
                    self._running = False
                self._interrupter.settle()
                _capture.flush()
            finally:
                _publish.sink = None
                with self._lock:
                    self._capture.end()
        self._interrupts.discard(cell)
        done["run_ms"] = (time.perf_counter() - start) * 1e3
        self._since = time.monotonic()
        self._post(done)

    def _check_interrupt(self, cell: int) -> None:
        if cell in self._interrupts:
            raise KeyboardInterrupt

    def _run_python(self, cell: int, arguments: dict[str, Any]) -> None:
        compiled = _cells.Cell(arguments["text"], int(arguments["number"]), self._frames.selected)
        value = compiled.run(self._frames.selected, own_names=bool(arguments.get("own_names")))
        if isinstance(value, Report) and not value.findings:  # findings have been sent, and are drawn
            print(value)  # of memory(), a table
        text = None if value is None or isinstance(value, Report) else _cells.text_of(value)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # what fails on the device belongs to this cell
            torch.cuda.synchronize()
        if text is not None:
            self._post({"kind": "value", "cell": cell, "text": text, "data": _cells.data_of(value)})

    def _run_cpp(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            self._cpp.expect(int(message["cell"]))
            self._runs_cpp = True
            self._check_interrupt(int(message["cell"]))
            done = self._cpp.run(message)
        finally:
            self._runs_cpp = False
            self._cpp.forget_interrupts()
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # what fails on the device belongs to this cell
            torch.cuda.synchronize()
        return done

    def _send_findings(self, findings: list[Finding]) -> None:
        for finding in findings:
            self._post({"kind": "finding", "finding": {**finding.json, "cell": self._cell}})

    def _select_frame(self, cell: int, arguments: dict[str, Any]) -> None:
        self._frames.move(int(arguments.get("move", 0)))
        os.write(1, (self._frames.describe() + "\n").encode("utf-8", "replace"))

    def _detach(self, cell: int, arguments: dict[str, Any]) -> None:
        self.detached = True

    def _close(self) -> None:
        if os.getpid() != self._process:
            return
        _open.discard(self)
        self._cpp.leave()
        with self._lock:
            self._ended = self._ended or "continue"
            self._closing = True
        os.write(self._wake_writer, b"e")
        self._io.join()
        for _ in range(_capture.PIPE_BYTES // _CHUNK):  # what child processes have written since
            if not self._pump():
                break
        self._connection.close()
        self._capture.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def leave_in_child(self) -> None:
        """In the child of a fork, which has no thread that serves the connection."""
        self._lock = threading.Condition()
        self._ended = "lost"
        self._tasks = queue.SimpleQueue()
        self._tasks.put({"kind": "lost"})
        self._capture.leave_in_child()
        self._connection.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    # ---- Sending -----------------------------------------------------------------------------------------------------

    def _send(self, message: dict[str, Any], *frames: bytes) -> None:
        """Does nothing if the shell is gone."""
        # Half of a surrogate pair is no text: it becomes a question mark.
        text = json.dumps({"v": self._protocol, **message}, allow_nan=False, ensure_ascii=False)
        header = text.encode("utf-8", "replace")
        with self._lock:
            if self._ended == "lost":
                return
            try:
                self._connection.send([header, *frames])
            except OSError:
                self._lose()

    def _post(self, message: dict[str, Any]) -> None:
        """Sends a message after all that was written before it."""
        _capture.flush()
        with self._lock:
            while self._pump():
                if self._credit <= 0 and self._ended is None:
                    self._lock.wait()
            self._send(message)

    def _pump(self) -> bool:
        """Sends what is in the pipes, as far as there is credit. Returns whether there may be more. Under the lock."""
        more = False
        for index, reader in enumerate(self._capture.readers):
            if self._credit <= 0 and self._ended is None:
                return True
            try:
                data = os.read(reader, min(_CHUNK, max(1, self._credit)) if self._ended is None else _CHUNK)
            except BlockingIOError:
                continue
            if not data:
                continue
            more = True
            self._credit -= len(data)
            if self._ended is None:
                self._send({"kind": "output", "cell": self._output_cell, "stream": _capture.STREAMS[index]}, data)
            else:  # nobody reads it there; it is the program's
                self._capture.write_through(index, data)
        return more

    def _lose(self) -> None:
        """The shell is gone. Under the lock."""
        if self._ended is None:
            self._ended = "lost"
            self._tasks.put({"kind": "lost"})
            self._lock.notify_all()
            os.write(self._wake_writer, b"l")  # from here on the thread of the connection empties the pipes

    # ---- The thread of the connection --------------------------------------------------------------------------------

    def _serve_connection(self) -> None:
        """Until the prompt closes: without a shell, what a cell writes goes where the program's output goes, so that the
        cell does not wait for room in the pipes."""
        while True:
            poll = select.poll()
            poll.register(self._wake_reader, select.POLLIN)
            with self._lock:
                if self._closing:
                    return
                connected = self._ended is None
                if self._credit > 0 or not connected:
                    for reader in self._capture.readers:
                        poll.register(reader, select.POLLIN)
            if connected:
                poll.register(self._connection.fileno(), select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._wake_reader in ready:
                os.read(self._wake_reader, 64)
            try:
                if connected and self._connection.fileno() in ready:
                    for frames in self._connection.receive():
                        self._take(json.loads(frames[0]), frames[1:])
            except Exception:  # the connection has ended, or carries what is no message of a shell
                with self._lock:
                    self._lose()
            with self._lock:
                if self._closing:
                    return
                self._pump()

    def _take(self, message: dict[str, Any], frames: list[bytes]) -> None:
        kind = message.get("kind")
        if message.get("v") != self._protocol:
            self._send({"kind": "not_ready", "message": f"the shell speaks version {message.get('v')} of the protocol, "
                        f"and this package version {self._protocol}: install the package of the same build"})
        elif kind == "credit":
            with self._lock:
                self._credit += int(message["bytes"])
                self._lock.notify_all()
        elif kind == "query":
            self._send({"kind": "reply", "id": message["id"], "body": self._answer(message)})
        elif kind == "interrupt":
            self._interrupt(int(message["cell"]))
        elif kind == "load":
            self._tasks.put({**message, "frames": frames})
        elif kind in ("builtin", "configure", "shutdown", "regroup", "prelude", "drop", "run"):
            self._tasks.put(message)

    def _interrupt(self, cell: int) -> None:
        with self._lock:
            self._interrupts.add(cell)  # it may not have begun
            if self._running and self._cell == cell:
                if self._runs_cpp:
                    self._cpp.interrupt(cell)
                else:
                    self._interrupter.interrupt(self._thread_id)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        what, arguments = message.get("what"), message.get("arguments") or {}
        try:
            if what == "status":
                return {"state": "running" if self._running else "idle", "cell": self._cell, "line": None,
                        "since_s": time.monotonic() - self._since, "collective": None, "device": _device(),
                        "rss_bytes": _resident_bytes(), "threads": torch.get_num_threads(), "cells_loaded": 0}
            if what == "cpp":
                return _cpp_cells.describe()
            if what == "stack":
                return _questions.stack(self._thread_id)
            if what in _questions.ABOUT_NAMES:
                return _questions.ABOUT_NAMES[what](arguments, self._frames.selected)
            return {"error": f"a rank of a Python job can't answer '{what}'"}
        except Exception as error:  # of the user's objects: the prompt goes on
            return {"error": f"{type(error).__name__}: {error}"}


class _Interrupter:
    """Raises KeyboardInterrupt on the thread that runs cells. On the main thread by SIGINT, which ends waits as well;
    its handler is replaced while the prompt is open. On other threads at their next bytecode."""

    def __init__(self) -> None:
        self._previous: Any = None
        self._replaced = False
        self._expected = False
        self.armed = False  # whether a cell runs: an interrupt is swallowed otherwise

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.getsignal(signal.SIGINT)
            if self._previous is not None:  # None: installed by C code, and can't be put back
                signal.signal(signal.SIGINT, self._handle)
                self._replaced = True

    def __exit__(self, *_: object) -> None:
        if self._replaced:
            if signal.getsignal(signal.SIGINT) == self._handle:  # and not one that a cell has installed
                signal.signal(signal.SIGINT, self._previous)
            self._replaced = False

    def interrupt(self, thread: int) -> None:
        if self._replaced:
            self._expected = True
            signal.pthread_kill(thread, signal.SIGINT)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))

    def settle(self) -> None:
        """Takes an interrupt that is on its way. Called when no more can come."""
        if not self._replaced:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
        elif self._expected and signal.getsignal(signal.SIGINT) == self._handle:  # else the cell's handler gets it
            # The signal was sent to this thread, so it is delivered when this call leaves the kernel; then Python runs
            # the handler. One that a cell has blocked comes later, and is for nobody then, too.
            signal.pthread_sigmask(signal.SIG_BLOCK, ())
            if signal.SIGINT in signal.sigpending():
                return
        self._expected = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._expected:
            self._expected = False
            if self.armed:
                raise KeyboardInterrupt
            return
        # Not from the prompt: what the program would do.
        if callable(self._previous):
            self._previous(number, frame)
        elif self._previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


_open: weakref.WeakSet[Prompt] = weakref.WeakSet()


def _leave_in_child() -> None:
    for prompt in list(_open):
        prompt.leave_in_child()
    _open.clear()


os.register_at_fork(after_in_child=_leave_in_child)


def _device() -> str:
    return f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
