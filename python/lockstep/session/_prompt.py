"""The prompt of a rank of a session: that of a stopped rank, with further questions and functions of a session."""

from __future__ import annotations

import threading
from typing import Any, Callable

import torch
import torch.distributed as dist

from lockstep.core import _backend, _exceptions, _library
from lockstep.prompt import _cells, _prompt, _questions
from lockstep.session import _again, _debugger, _members, _preempt

_PEERS_SECONDS = 1.0  # within which a rank is told to stop, too, where another one has left a collective because of that
_END_SECONDS = 0.2  # after which a cell that an interrupt has not ended is freed from its collectives, or the reverse


class SessionPrompt(_prompt.Prompt):
    _aborted: set[int] = set()  # cells that were freed from collectives
    _told_to_stop = threading.Event()  # the cell that runs was interrupted or aborted
    _steps: _again.Steps | None = None  # of the cell that runs, or was the last
    _meetings = 0  # how often this process had met others when it entered the cell

    # ---- The thread that runs cells ----------------------------------------------------------------------------------

    def _handle(self, message: dict[str, Any]) -> None:
        if message["kind"] == "regroup":
            self._regroup(message)
        else:
            super()._handle(message)

    def _functions(self) -> dict[str, Callable[[int, dict[str, Any]], None]]:
        return {"python": self._run_python, "barrier": lambda cell, arguments: dist.barrier(),
                "preempted": lambda cell, arguments: _preempt.run()}

    def _begin_cell(self, cell: int) -> None:
        self._steps = None
        with self._shell.lock:
            if cell not in self._interrupts | self._aborted:
                self._told_to_stop.clear()
        self._meetings = int(_library.call("enter_cell", cell=cell, step=0)["meetings"])

    def _run_steps(self, cell: int, compiled: _cells.Cell, arguments: dict[str, Any]) -> Any:
        if arguments.get("own_names"):
            return super()._run_steps(cell, compiled, arguments)
        self._steps = _again.Steps(cell, arguments, self._frames.selected.f_globals, self._meetings)
        return compiled.run(self._frames.selected, begins=self._steps.begins)

    def _is_told_to_end(self, cell: int) -> bool:
        return super()._is_told_to_end(cell) or cell in self._aborted

    def _is_interrupted(self, cell: int, error: BaseException) -> bool:
        text = _exceptions.message_of(error) if isinstance(error, RuntimeError) else ""
        if " left the collective " in text and ": aborted (" in text:  # this rank may be told a moment later
            self._told_to_stop.wait(_PEERS_SECONDS)
        return super()._is_interrupted(cell, error)

    def _note_error(self, error: BaseException, number: int) -> None:
        _debugger.note(error, number)

    def _end_cell(self, cell: int, done: dict[str, Any]) -> None:
        left = _library.call("leave_cell")
        meetings = int(left.pop("meetings"))
        done.update(left)
        if self._steps is not None:
            done.update(self._steps.finish(done["status"] == "ok", meetings))
        if cell in self._aborted:
            self._aborted.discard(cell)
            if done["status"] == "error" or (done["status"] == "interrupted" and cell not in self._interrupts):
                done["status"] = "aborted"
                done["error"]["root_cause"] = False

    def display(self, *values: Any) -> None:
        """Shows values at once, in a notebook as HTML or a picture where they have such a form."""
        for value in values:
            self._shell.post(self._message_of(value))

    def _regroup(self, message: dict[str, Any]) -> None:
        answer = {"kind": "regrouped", "generation": message["generation"], "ok": True, "message": ""}
        try:
            _members.follow_size(int(message["world_size"]), str(message["backend"]), int(message["threads"]))
            _members.follow(list(message["members"]))
            _backend.reconnect(int(message["generation"]), list(message["ranks"]), float(message["timeout_s"]),
                               message["aborts"])
        except Exception as error:
            answer.update(ok=False, message=f"{type(error).__name__}: {error}")
        self._shell.send(answer)

    # ---- The thread of the connection --------------------------------------------------------------------------------

    def _take(self, message: dict[str, Any], frames: list[bytes]) -> None:
        if message.get("kind") == "abort":
            self._abort(str(message["reason"]))
        elif message.get("kind") == "mismatch":
            _library.call("take_mismatch", incarnation=message["incarnation"], message=message["message"],
                          finding=message["finding"])
        elif message.get("kind") == "regroup":  # an abort may come before it begins
            super()._take({**message, "aborts": _backend.aborts()}, frames)
        else:
            super()._take(message, frames)

    def _abort(self, reason: str) -> None:
        cell = None
        with self._shell.lock:
            if self._running:
                self._aborted.add(self._cell)
                if _library.call("calls_in_flight")["calls"]:
                    cell = self._cell
                else:  # it waits for something else, or computes
                    self._stop_running()
        self._told_to_stop.set()
        _library.call("abort_job_groups", reason=reason)
        if cell is not None:  # it may wait for something else beside its collectives
            self._call_later(self._end_freed, cell)

    def _end_freed(self, cell: int) -> None:
        with self._shell.lock:
            if self._running and self._cell == cell:
                self._stop_running()

    def _interrupt(self, cell: int) -> None:
        super()._interrupt(cell)
        self._told_to_stop.set()
        # Python raises no exception in a thread that waits in a collective.
        self._call_later(self._free_interrupted, cell)

    def _call_later(self, function: Callable[[int], None], cell: int) -> None:
        timer = threading.Timer(_END_SECONDS, function, (cell,))
        timer.daemon = True
        timer.start()

    def _free_interrupted(self, cell: int) -> None:
        with self._shell.lock:
            is_there = self._running and self._cell == cell
        if is_there and _library.call("calls_in_flight")["calls"]:
            _library.call("abort_job_groups", reason="the cell was interrupted")

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        what = message["question"]["kind"]
        if what == "hang":
            return self._hang()
        answer = super()._answer(message)
        if what == "status":
            answer.update(_device_facts(), on_preempt=_preempt.is_registered())
        if what == "status" and self._running:
            calls = _library.call("calls_in_flight")["calls"]
            if calls:
                answer.update(collective=calls[0], state="waiting")
        return answer

    def _hang(self) -> dict[str, Any]:
        """The answer to protocol::question::Hang (protocol/questions.h)."""
        flight = _library.call("calls_in_flight")
        answer = _library.call("native_stack")
        native, held = answer.get("native", []), answer.get("held", False)
        if _waits_for_its_turn(native):
            native, held = [], False
        return {
            "frames": [*native, *_questions.stack(self._thread)["frames"]] if self._running else [],
            "held": held,
            "waits": {str(each["entry"]): each["where"] for each in flight["calls"] if each["where"]},
            "last": flight["last"],
        }


def _waits_for_its_turn(native: list[dict[str, Any]]) -> bool:
    """Whether a thread with this stack waits until another one gives the interpreter away: it computes. Python waits for
    conditions for that alone."""
    return any(frame["function"].startswith("pthread_cond_") and caller["object"].startswith(("python", "libpython"))
               for frame, caller in zip(native, native[1:]))


def _device_facts() -> dict[str, Any]:
    """The address of the GPU, by which the driver knows it; nothing on a CPU."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    facts: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    if not hasattr(facts, "pci_domain_id"):  # an older torch
        return {}
    return {"device_bus_id": f"{facts.pci_domain_id:08x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}.0"}
