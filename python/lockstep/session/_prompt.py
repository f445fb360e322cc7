"""The prompt of a rank of a session: that of a stopped rank, with further questions and functions of a session."""

from __future__ import annotations

import threading
from typing import Any, Callable

import torch
import torch.distributed as dist

from lockstep.core import _backend, _library
from lockstep.prompt import _cells, _prompt, _questions
from lockstep.session import _again, _debugger, _members, _preempt

_INTERRUPT_SECONDS = 0.2  # after which a cell that an interrupt has not ended is freed from its collectives


class SessionPrompt(_prompt.Prompt):
    _aborted: set[int] | None = None  # cells that were freed from collectives
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
        self._meetings = int(_library.call("enter_cell", cell=cell, step=0)["meetings"])

    def _run_steps(self, cell: int, compiled: _cells.Cell, arguments: dict[str, Any]) -> Any:
        if arguments.get("own_names"):
            return super()._run_steps(cell, compiled, arguments)
        self._steps = _again.Steps(cell, arguments, self._frames.selected.f_globals, self._meetings)
        return compiled.run(self._frames.selected, begins=self._steps.begins)

    def _note_error(self, error: BaseException, number: int) -> None:
        _debugger.note(error, number)

    def _end_cell(self, cell: int, done: dict[str, Any]) -> None:
        left = _library.call("leave_cell")
        meetings = int(left.pop("meetings"))
        done.update(left)
        if self._steps is not None:
            done.update(self._steps.finish(done["status"] == "ok", meetings))
        if self._aborted and cell in self._aborted:
            self._aborted.discard(cell)
            if done["status"] == "error":
                done["status"] = "aborted"
                done["error"]["root_cause"] = False

    def display(self, *values: Any) -> None:
        """Shows values at once, in a notebook as HTML or a picture where they have such a form."""
        for value in values:
            self._shell.post(self._message_of(value))

    def _regroup(self, message: dict[str, Any]) -> None:
        answer = {"kind": "regrouped", "generation": message["generation"], "ok": True, "message": ""}
        try:
            _members.follow(list(message["members"]))
            _backend.reconnect(int(message["generation"]), list(message["ranks"]), float(message["timeout_s"]))
        except Exception as error:
            answer.update(ok=False, message=f"{type(error).__name__}: {error}")
        self._shell.send(answer)

    # ---- The thread of the connection --------------------------------------------------------------------------------

    def _take(self, message: dict[str, Any], frames: list[bytes]) -> None:
        if message.get("kind") == "abort":
            self._abort(str(message["reason"]))
        else:
            super()._take(message, frames)

    def _abort(self, reason: str) -> None:
        with self._shell.lock:
            if self._running:
                self._aborted = (self._aborted or set()) | {self._cell}
        _library.call("abort_job_groups", reason=reason)

    def _interrupt(self, cell: int) -> None:
        super()._interrupt(cell)
        # Python raises no exception in a thread that waits in a collective.
        timer = threading.Timer(_INTERRUPT_SECONDS, self._free_interrupted, (cell,))
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
        """The answer to protocol::question::Hang."""
        flight = _library.call("calls_in_flight")
        native = _library.call("native_stack")
        return {
            "frames": [*native.get("native", ()), *_questions.stack(self._thread)["frames"]] if self._running else [],
            "held": native.get("held", False),
            "waits": {str(each["entry"]): each["where"] for each in flight["calls"]},
            "last": flight["last"],
        }


def _device_facts() -> dict[str, Any]:
    """The address of the GPU, by which the driver knows it; nothing on a CPU."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    facts: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    if not hasattr(facts, "pci_domain_id"):  # an older torch
        return {}
    return {"device_bus_id": f"{facts.pci_domain_id:08x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}.0"}
