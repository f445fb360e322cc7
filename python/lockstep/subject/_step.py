"""Steps that an inspector runs: the function, and the state that it changes, which is restored afterwards.

The library restores the contents of tensors and torch's generators, bit by bit and in place. The other state of
Python's objects is restored here: the dictionaries of optimizers, state_dict() of schedulers and scalers, Python's and
NumPy's random numbers.
"""

from __future__ import annotations

import copy
import ctypes
import random
import sys
from typing import Any, Callable, Sequence

import torch

from lockstep.core import _group, _library
from lockstep.core.errors import ArgumentError, PythonRaised
from lockstep.subject import _describe, _sharding

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)


class Callbacks:
    """Functions for the library to call. An exception is kept, and raised again by `run`."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._alive: list[Any] = []

    def address(self, function: Callable[[int], None]) -> int:
        def guarded(argument: int) -> int:
            try:
                function(argument)
            except BaseException as error:  # also KeyboardInterrupt: it goes through the library to the caller
                self.error = error
                return 1
            return 0

        wrapped = FUNCTION(guarded)
        self._alive.append(wrapped)
        return ctypes.cast(wrapped, ctypes.c_void_p).value or 0

    def run(self, operator: str, tensors: Sequence[torch.Tensor], **arguments: Any) -> dict[str, Any]:
        try:
            return _library.call(operator, tensors, **arguments)
        except PythonRaised:
            error, self.error = self.error, None
            assert error is not None
            raise error from None


class OtherState:
    """The state of objects besides tensors, as it was when this was made."""

    def __init__(self, objects: Sequence[Any]) -> None:
        self._restorers: list[Callable[[], None]] = []
        for each in objects:
            if isinstance(each, torch.nn.Module):
                self._keep_module(each)
            elif isinstance(each, torch.optim.Optimizer):
                self._keep_optimizer(each)
            elif not isinstance(each, torch.Tensor):
                self._keep_state_dict(each)
        python = random.getstate()
        self._restorers.append(lambda: random.setstate(python))
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            state = numpy.random.get_state()
            self._restorers.append(lambda: numpy.random.set_state(state))

    def restore(self) -> None:
        """Restores all, also where one of the program's objects raises; the first error is raised afterwards."""
        first: BaseException | None = None
        for each in self._restorers:
            try:
                each()
            except BaseException as error:
                first = error if first is None else first
        if first is not None:
            raise first

    def _keep_module(self, module: torch.nn.Module) -> None:
        modes = [(each, each.training) for each in module.modules()]
        # Whether the last forward announced a reduction: if not, the next one does not broadcast the buffers.
        synchronises = [
            (each, each.require_forward_param_sync, each.require_backward_grad_sync)
            for each in module.modules()
            if isinstance(each, torch.nn.parallel.DistributedDataParallel)
        ]

        def restore() -> None:
            for each, training in modes:
                each.training = training
            for wrapper, of_forward, of_backward in synchronises:
                wrapper.require_forward_param_sync = of_forward
                wrapper.require_backward_grad_sync = of_backward

        self._restorers.append(restore)

    def _keep_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        state = {parameter: _shallow(each) for parameter, each in optimizer.state.items()}
        groups = [{key: _kept(value) for key, value in group.items()} for group in optimizer.param_groups]

        def restore() -> None:
            optimizer.state.clear()
            for parameter, each in state.items():
                optimizer.state[parameter] = _shallow(each)
            for group, before in zip(optimizer.param_groups, groups):
                for key in [key for key in group if key not in before]:
                    del group[key]
                for key, value in before.items():
                    if key != "params":
                        group[key] = _kept(value)

        self._restorers.append(restore)

    def _keep_state_dict(self, value: Any) -> None:
        if not callable(getattr(value, "state_dict", None)) or not callable(getattr(value, "load_state_dict", None)):
            raise ArgumentError(
                f"a {type(value).__name__} can't be saved and restored. The state of a step are modules, optimizers, "
                "tensors, and objects with state_dict() and load_state_dict()"
            )
        state = copy.deepcopy(value.state_dict())
        self._restorers.append(lambda: value.load_state_dict(copy.deepcopy(state)))


def _kept(value: Any) -> Any:
    """A copy of the value; a tensor (a learning rate may be one) is not copied: the library restores its contents."""
    return value if isinstance(value, torch.Tensor) else copy.copy(value)


def _shallow(state: Any) -> Any:
    """A copy whose tensors are those of `state`."""
    if isinstance(state, dict):
        return {key: copy.copy(each) if isinstance(each, (list, dict)) else each for key, each in state.items()}
    return _kept(state)


def state_tensors(objects: Sequence[Any], tensors: _describe.Tensors) -> list[int]:
    """The tensors that the library saves, as indices."""
    found: list[torch.Tensor] = []
    for each in objects:
        if isinstance(each, torch.nn.Module):
            inner = _describe.bare(each)
            found += [*inner.parameters(), *inner.buffers()]
        elif isinstance(each, torch.optim.Optimizer):
            for group in each.param_groups:
                found += _tensors_in(list(group.values()))
            found += _tensors_in(list(each.state.values()))
        elif isinstance(each, torch.Tensor):
            found.append(each)
    result = []
    for each in found:
        local = _sharding.local_of(each)
        if local is not None:
            result.append(tensors.add(local))
        if each.grad is not None and local is not each:
            gradient = _sharding.local_of(each.grad)
            if gradient is not None:
                result.append(tensors.add(gradient))
    return result


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for each in value.values() for tensor in _tensors_in(each)]
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in _tensors_in(each)]
    return []


def ddp_among(objects: Sequence[Any]) -> list[torch.nn.parallel.DistributedDataParallel]:
    return [wrapper for each in objects if (wrapper := _describe.wrapper_of(each)) is not None]


def group_of(wrappers: Sequence[torch.nn.parallel.DistributedDataParallel]) -> dict[str, Any] | None:
    """The process group that a step reduces over: that of the first wrapper, or the default one; None without any."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    group: Any = wrappers[0].process_group if wrappers else distributed.group.WORLD
    return {"name": str(group.group_name), "ranks": _group.ranks_of(group)}


def give(value: Any) -> None:
    """Hands what a step returns (a loss, tensors) to the library."""
    tensors = [each for each in _tensors_in(value) if _sharding.local_of(each) is each]
    _library.call("give", tensors)
