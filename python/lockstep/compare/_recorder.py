"""Records what a training program computes in its first steps, for `lockstep compare`: the samples, the outputs of modules,
losses, gradients of outputs, gradients when the optimizer reads them, parameters before and after. The program is not
changed: torch's hooks for all modules and optimizers see it.

A step ends when a model is called after an optimizer has made its step. When enough steps have ended, the process ends.
"""

from __future__ import annotations

import atexit
import functools
import json
import multiprocessing.util
import os
import sys
import time
from typing import Any, Iterator

import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lockstep.compare import _ends, _flat, _names, _places, _quiet
from lockstep.core import _group, _library
from lockstep.subject import _sharding

_INITIAL, _FORWARD, _LOSS, _BACKWARD, _GRADIENT, _PARAMETER = range(6)  # PieceKind (inspectors/compare/recording.h)
_SHORTEST_WAIT = 30.0  # for ranks that have made fewer steps, in seconds; it is longer where the steps took long
_ROUNDED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class _Model:
    """A module that the program itself calls in training, with the names of its parts."""

    def __init__(self, root: torch.nn.Module, prefix: str) -> None:
        self.root = root
        self.modules = dict(_names.modules_of(root, prefix))


class Recorder:
    def __init__(self, folder: str) -> None:
        with open(os.path.join(folder, "options.json"), encoding="utf-8") as file:
            self._options: dict[str, Any] = json.load(file)
        self._folder = folder
        self._pid = os.getpid()  # of the rank: workers of its data loaders are copies of it
        self._is_open = self._is_over = False
        self._opened_at = 0.0
        self._step = 0
        self._micro_batch = -1  # of this step, or none yet; it begins with each call of the first model
        self._has_stepped = False
        self._batches_before_backward = 0  # called since the last one began
        self._is_of_one_batch = False  # this backward
        self._depth = 0  # of calls of modules
        self._models: list[_Model] = []
        self._known: set[int] = set()  # identities of the models, which are wrappers or modules with a name
        self._name_of_module: dict[int, str] = {}
        self._numbers: dict[str, int] = {}  # of names in the file
        self._calls: dict[tuple[int, str, int], int] = {}
        self._unplaced: torch.nn.Module | None = None  # one whose output had no place yet
        self._notes: set[str] = set()
        self._hook = _guarded(self, self._record_gradient_of_output)
        self._generator: torch.Generator | None = None
        if self._options["noise"]:
            self._generator = torch.Generator().manual_seed(int(self._options["noise"]))

    # ---- the file ------------------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.add(text)
            if self.is_recording():
                _library.call("compare_note", text=text)

    def _open(self) -> None:
        rank, world_size = _group.rank(), _group.world_size()
        if not _group.is_there() and "RANK" not in os.environ:
            rank, world_size = 0, 1
        _library.call("compare_open", path=os.path.join(self._folder, f"rank-{rank}.rec"), rank=rank,
                      world_size=world_size, torch=str(torch.__version__), steps=int(self._options["steps"]),
                      has_values=bool(self._options["has_values"]), noise=float(self._options["noise"]),
                      replacements=self._options["replacements"])
        self._is_open = True
        self._opened_at = time.monotonic()
        for each in self._notes:
            _library.call("compare_note", text=each)

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            base = name.partition("[")[0]
            module = next((model.modules[base] for model in self._models if base in model.modules), None)
            kind = "" if module is None else _names.type_of(module)
            self._numbers[name] = int(_library.call("compare_name", name=name, type=kind)["name"])
        return self._numbers[name]

    def _add(self, kind: int, name: str, tensor: torch.Tensor, micro_batch: int, call: int,
             known_place: _places.Place | None = None) -> None:
        """Records the tensor. Where the run has replacements, its memory has the reference's values afterwards."""
        if tensor.is_complex():
            self.note(f"{name} is complex, which is not compared")
            return
        place = (tensor, known_place) if known_place else _places.local_and_place(tensor)
        if place is None:
            self.note(f"{name} can't be recorded: {tensor.placements}")  # type: ignore[attr-defined]
            return
        local, where = place
        piece = [kind, self._number(name), self._step, micro_batch, call, where.flags, where.lead]
        torch.ops.lockstep.compare_piece(local, piece, where.shape, where.offset)
        if self._options["replacements"]:
            torch.ops.lockstep.compare_replace(local, piece, kind == _FORWARD and self._is_of_model(local))

    def _current(self) -> int:
        """The micro-batch that is computed now. Other models may be called before the first one."""
        return max(self._micro_batch, 0)

    def _next_call(self, kind: int, name: str, micro_batch: int | None = None) -> int:
        key = (kind, name, self._current() if micro_batch is None else micro_batch)
        self._calls[key] = self._calls.get(key, -1) + 1
        return self._calls[key]

    # ---- what the program does -----------------------------------------------------------------------------------------

    def is_recording(self) -> bool:
        return self._is_open and not self._is_over and os.getpid() == self._pid

    def begin_call(self, module: torch.nn.Module, args: Any, kwargs: Any) -> bool:
        """Called before a module that no other module calls. Returns whether its parts are recorded."""
        if self._is_over or os.getpid() != self._pid or not (module.training and torch.is_grad_enabled()):
            return False
        if self._is_in_backward():
            return False
        if not any(each.requires_grad for each in module.parameters()):
            return False  # a loss
        if self._has_stepped:
            self._end_step()
            if self._step >= int(self._options["steps"]):
                self._end_process()
        if not self._is_open:
            self._open()
        if id(module) not in self._known and id(module) not in self._name_of_module:
            self._meet(module)
        if not self._models or module is self._models[0].root:
            self._micro_batch += 1
            self._batches_before_backward += 1
            inputs = [_places.local_and_place(each) for _, each in _names.tensors_of([args, kwargs])]
            samples = [each[0] for each in inputs if each is not None and not each[0].is_complex()]
            if not torch.ops.lockstep.compare_samples(samples, self._step, self._micro_batch):
                self.note("the model is given no tensor that could be recorded, so samples were not compared")
        return True

    def _meet(self, root: torch.nn.Module) -> None:
        model = _Model(root, f"model{len(self._models) + 1}" if self._models else "")
        self._models.append(model)
        self._known.add(id(root))
        for name, module in model.modules.items():
            self._name_of_module[id(module)] = name
        if self._step == 0:
            parts = self._parts_of_parameters()
            for parameter in root.parameters():
                for part in parts.get(id(parameter), []):
                    self._add_part(_INITIAL, part, parameter)

    def sees_outputs(self) -> bool:
        return self._depth > 0 or bool(self._options["replacements"] and self._is_in_backward())

    def record_output(self, module: torch.nn.Module, _: Any, output: Any) -> Any:
        name = self._name_of_module.get(id(module))
        if name is None or not self.is_recording() or not torch.is_grad_enabled():
            return None
        if self._is_in_backward():  # activations are computed once more there
            if self._options["replacements"]:
                self._replace_once_more(name, output)
            return None
        if self._unplaced is None and any(_places.local_and_place(each) is None for _, each in _names.tensors_of(output)):
            self._unplaced = module  # hooks of the module, which come later, may make a tensor of it that has a place
            return None
        if self._generator is not None and not any(True for _ in module.children()):
            output = self._with_rounding(output)
        for full_name, tensor in _names.tensors_of(output, name):
            call = self._next_call(_FORWARD, full_name)
            self._add(_FORWARD, full_name, tensor, self._current(), call)
            if tensor.requires_grad:
                hook = functools.partial(self._hook, full_name, self._current(), call, self._step)
                tensor.register_hook(hook)  # type: ignore[no-untyped-call]
        return output if self._generator is not None else None

    def _replace_once_more(self, name: str, output: Any) -> None:
        """Replaces outputs of modules that were called once since the last backward: those of several calls may come
        in any order here."""
        for full_name, tensor in _names.tensors_of(output, name):
            place = _places.local_and_place(tensor)
            if place is not None:
                local, where = place
                piece = [_FORWARD, self._number(full_name), self._step, self._current(), 0, where.flags, where.lead]
                is_clear = self._is_of_one_batch and self._calls.get((_FORWARD, full_name, self._current())) == 0
                torch.ops.lockstep.compare_replace(local, piece, not is_clear or self._is_of_model(local))

    def _is_of_model(self, tensor: torch.Tensor) -> bool:
        """Whether it shares memory with a parameter or a buffer."""
        if tensor.layout != torch.strided:
            return False
        memory = tensor.untyped_storage().data_ptr()
        tensors = (each for model in self._models for each in (*model.root.parameters(), *model.root.buffers()))
        return any(each.untyped_storage().data_ptr() == memory for each in map(_sharding.local_of, tensors) if each is not None)

    def end_call(self, module: torch.nn.Module, output: Any) -> None:
        if self._unplaced is module:
            self.record_output(module, None, output)
            self._unplaced = None

    def _with_rounding(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype not in _ROUNDED:
                return value
            return _quiet.Rounding.apply(value, self._generator)  # type: ignore[no-untyped-call]
        if type(value) in (tuple, list):
            return type(value)(self._with_rounding(each) for each in value)
        return {key: self._with_rounding(each) for key, each in value.items()} if type(value) is dict else value

    @staticmethod
    def _is_in_backward() -> bool:
        return torch._C._current_graph_task_id() != -1

    def _record_gradient_of_output(self, name: str, micro_batch: int, call: int, step: int,
                                   gradient: torch.Tensor) -> torch.Tensor | None:
        if not self.is_recording() or step != self._step:
            return None
        if self._options["replacements"]:
            gradient = gradient.clone()  # another value may have the same gradient, whose replacement is its own
        # Several losses may be traced back through one output. Each gradient has a name of its own.
        earlier = self._next_call(_BACKWARD, f"{name}, call {call}", micro_batch)
        self._add(_BACKWARD, f"{name} (backward {earlier + 1})" if earlier else name, gradient, micro_batch, call)
        return gradient if self._options["replacements"] else None

    def record_losses(self, losses: Any) -> None:
        if not self.is_recording() or self._micro_batch < 0 or self._is_in_backward():
            return
        self._is_of_one_batch, self._batches_before_backward = self._batches_before_backward == 1, 0
        for each in [losses] if isinstance(losses, torch.Tensor) else losses:
            if each.numel() == 1 and each.is_floating_point():
                self._add(_LOSS, "loss", each.detach().reshape(()), self._micro_batch, self._next_call(_LOSS, "loss"))

    def _parts_of_parameters(self) -> dict[int, list[_flat.Part]]:
        """Parts by the identity of a parameter. fully_shard gives a module other parameters when it gathers them."""
        parts: dict[int, list[_flat.Part]] = {}
        for model in self._models:
            parts.update(_flat.parts_of(model.root, self._name_of_module))
            for name, parameter in _names.parameters_of(model.modules):
                parts.setdefault(id(parameter), [_flat.Part(name, None, None)])
        return parts

    def _parameters_of(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[_flat.Part, torch.Tensor]]:
        parts = self._parts_of_parameters()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and id(parameter) not in parts:
                    self.note("an optimizer has parameters of no model that was called, which are not compared")
                elif parameter.requires_grad:
                    yield from ((part, parameter) for part in parts[id(parameter)])

    def _add_part(self, kind: int, part: _flat.Part, tensor: torch.Tensor | None) -> None:
        if tensor is not None:
            self._add(kind, part.name, part.of(tensor), 0, 0, part.place)
        elif not part.is_here:
            self._add(kind, part.name, torch.empty(0), 0, 0, part.place)
        else:
            torch.ops.lockstep.compare_piece(torch.empty(0), [kind, self._number(part.name), self._step, 0, 0,
                                                              _places.ABSENT, 0], [], [])

    def record_gradients(self, optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:
        if self.is_recording():
            for part, parameter in self._parameters_of(optimizer):
                self._add_part(_GRADIENT, part, parameter.grad)

    def record_parameters(self, optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:
        if not self.is_recording():
            return
        for part, parameter in self._parameters_of(optimizer):
            self._add_part(_PARAMETER, part, parameter)
        self._has_stepped = True

    # ---- the ends ------------------------------------------------------------------------------------------------------

    def _end_step(self) -> None:
        _library.call("compare_end_step")
        self._step += 1
        self._micro_batch, self._has_stepped = -1, False
        self._calls.clear()

    def close(self) -> None:
        """Ends the recording at the end of the program."""
        if not self.is_recording():
            return
        if self._has_stepped:
            self._end_step()
        self._is_over = True
        _library.call("compare_close")

    def _end_process(self) -> None:
        """Ends the process before the rest of the program, which might write files."""
        self.close()
        if _group.is_there() and _group.world_size() > 1:
            limit = max(_SHORTEST_WAIT, 10 * (time.monotonic() - self._opened_at))
            if late := _ends.wait_for_ranks(limit):
                _fail(f"rank {_group.rank()} has made the {self._step} steps that are recorded, and {limit:.0f} s later "
                      f"{_ends.words(late)} not: does an optimizer skip steps there?")
        _exit(0)

    def give_up(self, problem: BaseException) -> None:
        """Ends the process, so that its launcher ends the other ranks, which would wait for this one."""
        if os.getpid() == self._pid:
            _fail(f"this rank can't be recorded: {type(problem).__name__}: {problem}")


def _fail(problem: str) -> None:
    print(f"lockstep compare: {problem}", file=sys.stderr)
    _exit(1)


def _exit(code: int) -> None:
    """Ends the process at once: nothing else of the program runs."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # it is closed
    os._exit(code)


def _guarded(recorder: Recorder, function: Any) -> Any:
    """`function`, whose errors the program does not see: they end the process."""

    @functools.wraps(function)
    def guarded(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as problem:
            recorder.give_up(problem)
            return None

    return guarded


def start(folder: str) -> None:
    """Records this process from its first training step on. Called while torch is imported."""
    recorder = Recorder(folder)
    begin_call, end_call = _guarded(recorder, recorder.begin_call), _guarded(recorder, recorder.end_call)
    module_class: Any = torch.nn.Module
    call_module = module_class.__call__

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if recorder._depth == 0 and not begin_call(self, args, kwargs):
            return call_module(self, *args, **kwargs)
        recorder._depth += 1
        try:
            output = call_module(self, *args, **kwargs)
            if recorder._unplaced is self:
                end_call(self, output)
            return output
        finally:
            recorder._depth -= 1

    module_class.__call__ = call
    record_output = _guarded(recorder, recorder.record_output)
    register_module_forward_hook(lambda *args: record_output(*args) if recorder.sees_outputs() else None)
    register_optimizer_step_pre_hook(_guarded(recorder, recorder.record_gradients))
    register_optimizer_step_post_hook(_guarded(recorder, recorder.record_parameters))
    backward = torch.autograd.backward
    record_losses = _guarded(recorder, recorder.record_losses)

    @functools.wraps(backward)
    def recorded_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        record_losses(tensors)
        return backward(tensors, *args, **kwargs)

    torch.autograd.backward = recorded_backward
    _quiet.turn_dropout_off(_guarded(recorder, recorder.note))
    close = _guarded(recorder, recorder.close)
    atexit.register(close)
    multiprocessing.util.Finalize(None, close, exitpriority=100)  # children that are forked end without atexit
