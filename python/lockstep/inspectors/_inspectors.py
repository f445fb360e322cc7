"""The questions: functions that every rank calls.

All of them have these arguments:

``name``
    The object's name in findings. By default the argument as it is written ("model"). Ranks have to agree on it.
``ranks``
    The ranks that take part; each of them has to call, the others return at once with an empty report. By default all
    ranks, or those of the process group of DistributedDataParallel.
``deadline``
    Seconds to wait for ranks that do not call; then a finding names them.
``step``
    The training step in findings, if no step is counted (`lockstep.watch`, `lockstep.step`).
``raise_on_fault``
    Raise `lockstep.FaultFound` on every rank that took part if there is a fault.

They return a `Report`, the same on every rank that took part. Nothing of the program's process groups is used, no random
number is drawn, and nothing that is looked at changes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import Any, Callable, TypeVar

import torch

from lockstep.core import _library
from lockstep.core.errors import ArgumentError
from lockstep.core.report import Report
from lockstep.inspectors import _call
from lockstep.inspectors._call import Deadline, Ranks
from lockstep.subject import _counting, _describe, _samples, _sharding, _step

Module = torch.nn.Module
T = TypeVar("T")


def attach(*, deadline: Deadline = 60.0, raise_on_fault: bool = False) -> Report:
    """Connects the ranks, as otherwise the first call of an inspector does. Collective over all ranks of the default
    group. Programs whose first inspection is one of a few ranks need it."""
    arguments = _call.common("attach", "", None, deadline, None, object_of_call=False)
    return _call.run("attach", [], arguments, raise_on_fault=raise_on_fault)


def detach() -> None:
    """Closes the connections of the inspectors. Local; the next inspection attaches again. Only needed before
    `torch.distributed.destroy_process_group` in a program that goes on with other process groups."""
    if _library.is_loaded():
        _library.call("detach")


def verify(
    value: Any,
    *,
    model: Module | None = None,
    method: str = "fingerprint",
    rtol: float = 1e-5,
    atol: float = 1e-8,
    name: str | None = None,
    ranks: Ranks = None,
    deadline: Deadline = 10.0,
    step: int | None = None,
    raise_on_fault: bool = False,
) -> Report:
    """Is this the same on every rank, bit by bit?

    `value`: a module (also in DistributedDataParallel or FullyShardedDataParallel), an optimizer, a tensor, "rng" (the
    random number generators of torch), a generator, or a container of tensors and values, such as a `state_dict()`. Keys
    of dictionaries are compared as text, and 1 in a list equals 1.0. `model` gives names to the parameters of an
    optimizer; an optimizer that has none of them is a fault.

    `method`: "fingerprint" reads every byte once and exchanges a few numbers if all is equal; "broadcast" and
    "all_gather" send every tensor, the last compares with `rtol` and `atol`.

    Of DTensors and FullyShardedDataParallel the layout is compared on all ranks, each part among the ranks that
    replicate it; a part that one rank has for itself is searched for NaN and Inf. The `ok` says what was not compared.

    Raises ArgumentError for what can't be compared (sparse and meta tensors, unknown types), PeerLeft for a rank that is
    lost during the call.
    """
    arguments = _call.common("verify", name, _call.ranks_or_own(value, ranks), deadline, step)
    name = arguments["name"] or (value if isinstance(value, str) and value == "rng" else "")
    arguments["name"] = name
    description = _describe.describe(value, name, model)
    if model is not None and isinstance(value, torch.optim.Optimizer) and _describe.steps_others(value, model):
        description.doubt(True, "parameter", _describe.STEPS_OTHERS)
    arguments.update(subject=description.json, type=description.json["type"], method=method, rtol=rtol, atol=atol)
    return _call.run("verify", description.tensors.list, arguments, raise_on_fault=raise_on_fault)


def grads(
    value: Any,
    *,
    local: bool = False,
    threshold: float = 10.0,
    factor: float | None = None,
    name: str | None = None,
    ranks: Ranks = None,
    deadline: Deadline = 10.0,
    step: int | None = None,
    raise_on_fault: bool = False,
) -> Report:
    """Are the gradients right? To be called after backward, before `zero_grad`.

    After the reduction (the default) they must be equal on all ranks, finite, and the mean over the ranks. With `local`
    they are those before the reduction: they need not be equal, but must be present, finite, and of similar size.
    `watch_grads` lets both know the gradients that backward made, before the reduction.

    `value`: a module, DistributedDataParallel, an optimizer, or tensors. `threshold`: from which ratio a rank's gradient
    is an outlier. `factor`: the intended ratio of reduced gradients to the mean, for programs that scale them.

    Of gradients that are divided (DTensor, FullyShardedDataParallel) the layout is compared, and each part as by
    verify; they are those after the reduction.
    """
    arguments = _call.common("grads", name, _call.ranks_or_own(value, ranks), deadline, step)
    divided = _divided_gradients(value, arguments["name"], local)
    if divided is not None:
        arguments.update(name=divided.json["name"], subject=divided.json, type="gradients", method="fingerprint",
                         rtol=0.0, atol=0.0)
        return _call.run("verify", divided.tensors.list, arguments, raise_on_fault=raise_on_fault)
    tensors = _describe.Tensors()
    subject = _describe.gradients(value, arguments["name"], tensors)
    arguments.update(subject=subject, type=subject["type"], local=local, threshold=float(threshold), factor=factor)
    return _call.run("grads", tensors.list, arguments, raise_on_fault=raise_on_fault)


def _divided_gradients(value: Any, name: str, local: bool) -> _describe.Description | None:
    """The gradients of a module with divided parameters, as a subject to verify; None for other objects."""
    if not isinstance(value, Module):
        return None
    if not _sharding.is_divided(value):
        return None
    units = _sharding.flat_units(value)
    parameters = list(value.named_parameters())
    description = _describe.Description(f"{name}.grad" if name else "gradients", "gradients")
    description.json["inputs"] = _describe.inputs_seen.get(value)
    managed: set[int] = set()
    present = False
    for unit in units:
        managed |= unit.managed
        present = present or unit.gradient is not None
        if unit.gradient is None:
            description.add_value(f"{unit.name}.grad", "tensor", None)
        else:
            description.add_part(f"{unit.name}.grad", "tensor", dataclasses.replace(unit.part, local=unit.gradient))
    for key, each in parameters:
        if id(each) not in managed and each.requires_grad:
            present = present or each.grad is not None
            description.add_tensor(_describe.plain_name(key), "tensor", each.grad)
    if not present:
        description.doubt(False, "gradient", "no gradients: call grads between backward and zero_grad")
    elif local:
        description.doubt(False, "gradient", "gradients of divided parameters are kept after the reduction only: equal "
                          "and finite there, and not checked before it; data(loader) shows whether ranks read the same "
                          "samples")
    return description


def ranks(
    *,
    ranks: Ranks = None,
    deadline: Deadline = 10.0,
    raise_on_fault: bool = False,
) -> Report:
    """Do the ranks agree on their setup? Ranks that are doubled, a device that two ranks use, environment variables,
    settings, versions and code that differ. `print` draws a row for each rank."""
    arguments = _call.common("ranks", "", ranks, deadline, None, object_of_call=False)
    arguments["step"] = None
    return _call.run("ranks", [], arguments, raise_on_fault=raise_on_fault)


def data(
    value: Any,
    *,
    size: int | None = None,
    batch_size: int | None = None,
    epoch: int | None = None,
    join: bool = False,
    name: str | None = None,
    ranks: Ranks = None,
    deadline: Deadline = 10.0,
    raise_on_fault: bool = False,
) -> Report:
    """Do the ranks divide the samples as data-parallel training needs it? Finds samples that two ranks read, samples
    that no rank reads, uneven numbers of batches, and a sampler without `set_epoch`.

    `value`: a DataLoader, a sampler, or the indices that this rank reads in an epoch. No sample is loaded: indices are
    read from the sampler. `size`: of the dataset, and `batch_size`, where `value` does not know them. `epoch`: the
    current one, from 0. `join`: the loop runs under `join()`, where ranks may have different numbers of batches.

    `report.data` has the numbers: samples and batches of each rank, distinct, shared, omitted.
    """
    arguments = _call.common("data", name, ranks, deadline, None)
    arguments["step"] = None
    read = _samples.read(value)
    tensors = _describe.Tensors()
    callbacks = _step.Callbacks()
    of_epoch = read.of_epoch

    def give_epoch(number: int) -> None:
        assert of_epoch is not None
        _library.call("give", [torch.tensor(of_epoch(number), dtype=torch.int64)])

    arguments.update(
        size=read.size if size is None else size,
        batch_size=read.batch_size if batch_size is None else batch_size,
        epoch=epoch,
        join=join,
        order={
            "samples": tensors.add(torch.tensor(read.samples, dtype=torch.int64)),
            "batches": None if read.batches is None else tensors.add(torch.tensor(read.batches, dtype=torch.int64)),
            "epoch": read.epoch,
            "worker_seed": read.worker_seed,
            "of_epoch": None if of_epoch is None else callbacks.address(give_epoch),
        },
    )
    return _call.run("data", tensors.list, arguments, raise_on_fault=raise_on_fault, callbacks=callbacks)


def memory(
    *,
    ranks: Ranks = None,
    deadline: Deadline = 10.0,
    raise_on_fault: bool = False,
    **named: Any,
) -> Report:
    """What uses the memory? `memory(model=model, optimizer=optimizer)`: tensors by the names of their owners, the
    process, the device and torch's allocators. Finds nothing wrong by itself; `print` draws a column for each rank."""
    arguments = _call.common("memory", "", ranks, deadline, None, object_of_call=False)
    tensors = _describe.Tensors()
    arguments["named"] = [{"name": key, "tensors": _memory_of(each, tensors)} for key, each in named.items()]
    return _call.run("memory", tensors.list, arguments, raise_on_fault=raise_on_fault)


def _memory_of(value: Any, tensors: _describe.Tensors) -> list[dict[str, Any]]:
    description = _describe.describe(value, "")
    items = [*description.json["items"], *description.json["parts"]]
    result = [
        {"kind": item["kind"], "name": item["name"], "tensor": tensors.add(description.tensors.list[item["tensor"]])}
        for item in items
        if "tensor" in item
    ]
    if isinstance(value, Module):
        for name, parameter in value.named_parameters():
            gradient = None if parameter.grad is None else _sharding.local_of(parameter.grad)
            if gradient is not None:
                result.append({"kind": "gradient", "name": _describe.plain_name(name), "tensor": tensors.add(gradient)})
    return result


def timeline(
    path: str | os.PathLike[str],
    *,
    ranks: Ranks = None,
    deadline: Deadline = 10.0,
    raise_on_fault: bool = False,
) -> Report:
    """Writes what all ranks did, on one clock, for ui.perfetto.dev: the operators since `record_operators`, and the
    collectives of process groups that have the backend `lockstep` (of others they are operators). The lowest rank
    writes the file."""
    arguments = _call.common("timeline", os.fspath(path), ranks, deadline, None, object_of_call=False)
    arguments["path"] = os.path.abspath(path)
    return _call.run("timeline", [], arguments, raise_on_fault=raise_on_fault)


# ---- functions that run a step ------------------------------------------------------------------------------------


def _check_step(function: str, step: Any) -> None:
    if isinstance(step, Module) or not callable(step):
        raise ArgumentError(
            f"{function}: the first argument is the step, a function that trains once; a {type(step).__name__} is not. "
            f"State comes after it: {function}(step, model, optimizer)"
        )


def nan_trace(
    function: Callable[[], Any],
    *state: Any,
    name: str | None = None,
    ranks: Ranks = None,
    deadline: Deadline = 10.0,
    step: int | None = None,
    raise_on_fault: bool = False,
) -> Report:
    """Where does the first NaN or Inf come from? Runs `function` (a training step without arguments, which may return
    its loss) once, traced, and names the operator that made the first bad value, with its line and module.

    `state`: what the step changes (modules, optimizers, schedulers, tensors), which is restored afterwards; random
    numbers always are. The step's collectives run again, so every rank has to call it. Exceptions of the step are
    passed on once the state is restored.
    """
    _check_step("nan_trace", function)
    arguments = _call.common("nan_trace", name, ranks, deadline, step, object_of_call=False)
    other = _step.OtherState(state)
    callbacks = _step.Callbacks()

    def run(_: int) -> None:
        _step.give(function())

    return _run_step("nan_trace", run, state, arguments, callbacks, other, raise_on_fault)


def first_difference(
    function: Callable[[], Any],
    *state: Any,
    repeat: bool = False,
    max_operators: int = 100_000,
    name: str | None = None,
    ranks: Ranks = None,
    deadline: Deadline = 10.0,
    step: int | None = None,
    raise_on_fault: bool = False,
) -> Report:
    """At which operator do the ranks diverge? Runs `function` (a training step without arguments) once and compares the
    operators of all ranks: what went in and came out, forward and backward. Nothing is restored.

    With `repeat` each rank runs the step twice from the same state and compares its own two runs; the state is restored.

    `state`: what the step changes (modules, optimizers, schedulers, tensors); modules give parameters their names.
    `max_operators`: that are kept for the comparison, some 300 bytes each.
    """
    _check_step("first_difference", function)
    if max_operators < 1:
        raise ArgumentError(f"first_difference: {max_operators} operators? It takes 1 or more")
    arguments = _call.common("first_difference", name, ranks, deadline, step, object_of_call=False)
    arguments.update(repeat=repeat, max_operators=max_operators, unrecorded_runs=2 if _step.ddp_among(state) else 0)
    other = _step.OtherState(state) if repeat else None
    callbacks = _step.Callbacks()

    def run(_: int) -> None:
        if other is not None:
            other.restore()
        function()

    return _run_step("first_difference", run, state, arguments, callbacks, other, raise_on_fault)


def _run_step(
    operator: str,
    run: Callable[[int], None],
    state: tuple[Any, ...],
    arguments: dict[str, Any],
    callbacks: _step.Callbacks,
    other: _step.OtherState | None,
    raise_on_fault: bool,
) -> Report:
    tensors = _describe.Tensors()
    saved = _step.state_tensors(state, tensors) if other is not None else []
    arguments.update(
        state=saved, names=_describe.names(tensors, *state), step_function=callbacks.address(run)
    )
    try:
        with _counting.uncounted(other is not None):
            return _call.run(operator, tensors.list, arguments, raise_on_fault=raise_on_fault, callbacks=callbacks)
    finally:
        if other is not None:
            other.restore()


def time_sync(
    function: Callable[..., Any],
    *state: Any,
    warm_up: int = 3,
    steps: int = 15,
    straggler: float = 1.2,
    name: str | None = None,
    deadline: Deadline = 10.0,
    raise_on_fault: bool = False,
) -> Report:
    """What does synchronising gradients cost? Measures a step with synchronisation and the same step without, in turn,
    and finds a rank that is slow.

    `function`: a training step without arguments if DistributedDataParallel is among `state` (it then runs under
    `no_sync()`), else one with a bool: whether to synchronise. `state`: what the step changes; it is restored.
    `warm_up` and `steps`: runs before the measurement, and measured runs of each kind. `straggler`: the ratio to the
    median of the others from which a rank is one. `report.data` has the times, in seconds; `print` draws the table.

    The reductions of a step are timed alone where its process group has the backend `lockstep`. Every rank of that
    group has to call.
    """
    _check_step("time_sync", function)
    wrappers = _step.ddp_among(state)
    arguments = _call.common("time_sync", name or "step", None, deadline, None, object_of_call=False)
    callbacks = _step.Callbacks()
    before = _step.OtherState(state)
    warm: list[_step.OtherState] = []

    def run(synchronise: int) -> None:
        if not wrappers:
            function(bool(synchronise))
        elif synchronise:
            function()
        else:
            with contextlib.ExitStack() as scopes:
                for each in wrappers:
                    scopes.enter_context(each.no_sync())
                function()

    def restore(what: int) -> None:  # the numbers are those of python/operators/operators.cpp
        if what == 1:
            before.restore()
        elif what == 2:
            warm[0].restore()
        elif what == 3:
            warm.append(_step.OtherState(state))
        tensors = _describe.Tensors()
        indices = _step.state_tensors(state, tensors)
        _library.give_list(tensors.list, indices)

    arguments.update(
        warm_up=warm_up,
        steps=steps,
        straggler=float(straggler),
        step_group=_step.group_of(wrappers),
        step_function=callbacks.address(run),
        state_function=callbacks.address(restore),
    )
    with _counting.uncounted(True):
        return _call.run("time_sync", [], arguments, raise_on_fault=raise_on_fault, callbacks=callbacks)
