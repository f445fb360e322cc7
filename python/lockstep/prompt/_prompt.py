"""A rank that is stopped and serves the prompt of a shell: it speaks the protocol of a worker (docs/protocol.md) to the
shell's hub. The thread that has stopped runs the cells; that of the connection takes messages, and answers what needs no
code of the program. Another one answers the rest: a __repr__ may take long, or wait for a lock that the cell holds."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
import weakref
from typing import Any, Callable

import torch

from lockstep.core import _device, _library
from lockstep.core.report import Finding, Report
from lockstep.inspectors import _publish
from lockstep.prompt import _capture, _cells, _cpp_cells, _frames, _questions, _rich, _scope
from lockstep.prompt._interrupter import Interrupter
from lockstep.prompt._invitations import Invitation
from lockstep.prompt._shell import Shell


class Ended(Exception):
    """Ends the prompt: the program goes on."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how  # continue: the shell says so; lost: the shell is gone


class Prompt:
    """The cells of one shell, on the thread that has stopped."""

    def __init__(self, invitation: Invitation, rank: int, frames: _frames.Frames) -> None:
        """Raises OSError when the shell can't be reached, or there are no descriptors or threads for it."""
        self._process = os.getpid()
        self._rank = rank
        self._frames = frames
        self._thread = threading.get_ident()
        self._tasks: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._questions: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()  # None: the end
        self._answers = False  # whether a thread takes them
        self._shell = Shell(invitation.hub, invitation.identity)
        self._interrupter = Interrupter(self._shell.lock)
        self._cpp = _cpp_cells.CppCells(invitation.hub, rank, lambda: frames.selected, self._shell.post)
        self._cell = 0  # that runs, or was the last
        self._running = False
        self._runs_cpp = False
        self._since = time.monotonic()
        self._interrupts: set[int] = set()  # cells to interrupt
        self._values: list[dict[str, Any]] = []  # the messages with those of the cell
        self._rich = False  # whether the front end draws HTML and pictures
        self.detached = False
        try:
            self._shell.start(self._take, lambda: self._tasks.put({"kind": "lost"}))
            self._greet()
        except BaseException:
            self._shell.close()
            raise
        _open.add(self)

    def _greet(self) -> None:
        self._shell.send({
            "kind": "hello", "rank": self._rank, "pid": self._process, "host": socket.gethostname(),
            "machine": _library.constant("machine"), "device": _device.name(),
            "versions": {"protocol": self._shell.protocol, "lockstep": _library.constant("lockstep"),
                         "libtorch": str(torch.__version__), "compiler": ""},
            "where": _frames.place_of(self._frames.selected),
        })
        self._shell.send({"kind": "ready", "threads": torch.get_num_threads()})

    def run(self) -> str:
        """Runs cells until the shell lets the program go on ("continue"), or is gone ("lost"); "forked" in the child of
        a cell that has forked."""
        try:
            with self._interrupter:
                while True:
                    try:
                        self._handle(self._tasks.get())
                    except Ended as end:
                        return end.how if os.getpid() == self._process else "forked"
        finally:
            self._close()

    def _close(self) -> None:
        if os.getpid() == self._process:
            _open.discard(self)
            self._questions.put(None)
            self._cpp.leave()
            self._shell.close()

    def leave_in_child(self) -> None:
        """Leaves the prompt in the child of a fork."""
        self._tasks = queue.SimpleQueue()
        self._tasks.put({"kind": "lost"})
        self._questions, self._answers = queue.SimpleQueue(), False
        self._shell.leave_in_child()
        self._interrupter.lock = self._shell.lock

    # ---- The thread that has stopped ---------------------------------------------------------------------------------

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
            self._shell.send({"kind": "regrouped", "generation": message["generation"], "ok": True})
        elif kind == "prelude":
            self._cpp.use_prelude(message["path"])
        elif kind == "load":
            self._shell.send(self._cpp.load(message, message.pop("frames")))
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
                _capture.write_error(f"rank {self._rank} can't change to {message['directory']}: {error.strerror}\n")

    def _run_builtin(self, message: dict[str, Any]) -> None:
        cell, function = int(message["cell"]), message["function"]
        functions = self._functions()

        def run() -> dict[str, Any]:
            if function["kind"] not in functions:
                raise NotImplementedError(f"a rank of a Python job can't do '{function['kind']}'")
            functions[function["kind"]](cell, function)
            return {"steps_done": 1}

        self._run_cell(cell, int(function.get("number") or cell), run)

    def _functions(self) -> dict[str, Callable[[int, dict[str, Any]], None]]:
        return {"python": self._run_python, "frame": self._select_frame, "detach": self._detach}

    def _run_cell(self, cell: int, number: int, run: Callable[[], dict[str, Any]]) -> None:
        """Runs a cell. `run` returns fields of the message Done, or raises."""
        done: dict[str, Any] = {"kind": "done", "cell": cell, "status": "ok", "steps_done": 0}
        start = time.perf_counter()
        with self._shell.lock:
            self._cell = cell
            self._running = True
            self._since = time.monotonic()
        try:
            try:
                self._shell.begin_output(cell)
                self._begin_cell(cell)
                _publish.sink = self._send_findings
                self._interrupter.arm()
                if self._is_told_to_end(cell):
                    raise KeyboardInterrupt
                done.update(run())
                if done["status"] == "ok":
                    self._check_interrupt(cell)
            finally:
                self._interrupter.disarm()
        except BaseException as error:  # an exception ends the cell, not the rank
            self._interrupter.disarm()  # where an interrupt came before the end of the other
            done["status"] = "interrupted" if self._is_interrupted(cell, error) else "error"
            done["error"] = _cells.describe_error(error, number)
            if done["status"] == "interrupted":
                done["error"]["root_cause"] = False
            else:
                self._note_error(error, number)
        finally:  # also where the program's own handler of Ctrl-C raises in between
            self._running = False
            _publish.sink = None
            _scope.settle()
            self._shell.end_output()
        values, self._values = self._values, []
        self._end_cell(cell, done)
        self._interrupts.discard(cell)
        done["run_ms"] = (time.perf_counter() - start) * 1e3
        self._since = time.monotonic()
        self._shell.post(*values, done)

    def _begin_cell(self, cell: int) -> None:
        """Called when a cell begins, for prompts that have more to do."""

    def _is_told_to_end(self, cell: int) -> bool:
        """Whether the cell has to end before it has begun."""
        return cell in self._interrupts

    def _is_interrupted(self, cell: int, error: BaseException) -> bool:
        """Whether `error` is that of an interrupt."""
        return cell in self._interrupts

    def _note_error(self, error: BaseException, number: int) -> None:
        """Called when the cell that people call `number` has raised `error`."""

    def _end_cell(self, cell: int, done: dict[str, Any]) -> None:
        """Called when a cell ends; `done` is the message that follows."""

    def _check_interrupt(self, cell: int) -> None:
        if cell in self._interrupts:
            raise KeyboardInterrupt

    def _run_python(self, cell: int, arguments: dict[str, Any]) -> None:
        self._rich = bool(arguments.get("rich"))
        compiled = _cells.Cell(arguments["text"], int(arguments["number"]), self._frames.selected, str(arguments.get("shown", "")))
        value = self._run_steps(cell, compiled, arguments)
        is_report = isinstance(value, Report)
        if is_report and not value.findings:  # findings have been sent, and are drawn
            _capture.write(f"{value}\n")  # of memory(), a table
        self._values += [] if value is None or is_report else [self._message_of(value)]
        if self._rich:
            self._values += [self._message_of(each) for each in _rich.open_figures()]
        _device.synchronize()  # what fails on the device belongs to this cell

    def _run_steps(self, cell: int, compiled: _cells.Cell, arguments: dict[str, Any]) -> Any:
        return compiled.run(self._frames.selected, own_names=bool(arguments.get("own_names")))

    def _message_of(self, value: Any) -> dict[str, Any]:
        """The message that shows a value."""
        forms = _rich.forms_of(value) if self._rich else None
        return {"kind": "value", "cell": self._cell, "text": _cells.text_of(value),
                "data": {"mime": forms} if forms else _cells.data_of(value)}

    def _run_cpp(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            self._cpp.expect(int(message["cell"]))
            self._runs_cpp = True
            self._check_interrupt(int(message["cell"]))
            done = self._cpp.run(message)
        finally:
            self._runs_cpp = False
            self._cpp.forget_interrupts()
        _device.synchronize()  # what fails on the device belongs to this cell
        return done

    def _send_findings(self, findings: list[Finding]) -> None:
        for finding in findings:
            self._shell.post({"kind": "finding", "finding": {**finding.json, "cell": self._cell}})

    def _select_frame(self, cell: int, arguments: dict[str, Any]) -> None:
        self._frames.move(int(arguments.get("move", 0)))
        _capture.write(self._frames.describe() + "\n")

    def _detach(self, cell: int, arguments: dict[str, Any]) -> None:
        self.detached = True

    # ---- The thread of the connection --------------------------------------------------------------------------------

    def _take(self, message: dict[str, Any], frames: list[bytes]) -> None:
        kind = message.get("kind")
        if kind == "query" and message["question"]["kind"] in _questions.ABOUT_NAMES:
            self._ask(message)
        elif kind == "query":
            self._reply(message)
        elif kind == "interrupt":
            self._interrupt(int(message["cell"]))
        elif kind == "load":
            self._tasks.put({**message, "frames": frames})
        elif kind in ("builtin", "configure", "shutdown", "regroup", "prelude", "drop", "run"):
            self._tasks.put(message)

    def _ask(self, message: dict[str, Any]) -> None:
        if not self._answers:
            try:
                threading.Thread(target=self._answer_questions, name="lockstep-answers", daemon=True).start()
            except RuntimeError:  # the limit of the user's processes
                return self._reply(message)
            self._answers = True
        self._questions.put(message)

    def _answer_questions(self) -> None:
        while (message := self._questions.get()) is not None:
            self._reply(message)

    def _reply(self, message: dict[str, Any]) -> None:
        self._shell.send({"kind": "reply", "id": message["id"], "body": self._answer(message)})

    def _interrupt(self, cell: int) -> None:
        with self._shell.lock:
            self._interrupts.add(cell)  # it may not have begun
            if self._running and self._cell == cell:
                self._stop_running()

    def _stop_running(self) -> None:
        """Interrupts the cell that runs. The caller holds the lock."""
        if self._runs_cpp:
            self._cpp.interrupt(self._cell)
        else:
            self._interrupter.interrupt()

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        question: dict[str, Any] = message["question"]
        what = question["kind"]
        try:
            if what == "status":
                return {"state": "running" if self._running else "idle", "cell": self._cell, "line": None,
                        "since_s": time.monotonic() - self._since, "collective": None, "device": _device.name(),
                        "rss_bytes": _resident_bytes(), "threads": torch.get_num_threads(), "cells_loaded": 0}
            if what == "cpp":
                return _cpp_cells.describe()
            if what == "stack":
                return _questions.stack(self._thread)
            if what in _questions.ABOUT_NAMES:
                return _questions.ABOUT_NAMES[what](question, self._frames.selected)
            return {"error": f"a rank of a Python job can't answer '{what}'"}
        except BaseException as error:  # of the program's objects: the prompt goes on
            return {"error": f"{type(error).__name__}: {error}"}


_open: weakref.WeakSet[Prompt] = weakref.WeakSet()


def _leave_in_child() -> None:
    for prompt in list(_open):
        prompt.leave_in_child()
    _open.clear()


os.register_at_fork(after_in_child=_leave_in_child)


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
