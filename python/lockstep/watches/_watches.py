"""Watches: inspectors that look while training runs, until they are closed."""

from __future__ import annotations

import atexit
import weakref
from typing import Any, Callable, Iterable, overload

import torch

from lockstep.core import _caller, _group, _library
from lockstep.core.errors import ArgumentError, LockstepError, PythonRaised
from lockstep.core.report import FaultFound, Finding, Report
from lockstep.inspectors import _call, _publish
from lockstep.inspectors._call import Deadline, Ranks
from lockstep.record import _step as _record_step
from lockstep.subject import _counting, _describe, _sharding, _step

stop_between_steps: Callable[[], None] | None = None  # of the prompt
_stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
_counted: weakref.WeakKeyDictionary[torch.optim.Optimizer, Any] = weakref.WeakKeyDictionary()
_open: set[Watch] = set()  # so that a watch that no variable holds goes on looking


def _report_of(findings: list[Finding]) -> Report:
    return Report(findings, 0, 0, 0.0, [])


@overload
def step() -> None: ...
@overload
def step(first: Any, /, *others: Any, batch: Any = None) -> _record_step.Step: ...
def step(*objects: Any, batch: Any = None) -> _record_step.Step | None:
    """Without an argument: counts a training step, and runs the checks of watches that are due. For loops whose optimizer
    no watch knows; `watch` and `nan_watch` count the steps of the optimizer that they are given. Collective over the
    ranks of a watch whose check is due.

    With the model, the optimizer, and whatever else has a state_dict that training changes: marks a training step for
    `lockstep run --record K` and `lockstep replay`, and does nothing otherwise. Local.

        with lockstep.step(model, optimizer, batch=(inputs, labels)):
            loss = …
            loss.backward()
            optimizer.step()

    `batch` are tensors that are recorded with the step, and get the recorded values when it is replayed; a batch that
    the body makes from random generators needs none. Raises ArgumentError for an object without a state.
    """
    if objects:
        return _record_step.Step(objects, batch)
    if batch is not None:
        raise ArgumentError("step: a batch is recorded with a model: with lockstep.step(model, optimizer, batch=…)")
    if not _counting.is_counted():
        return None
    found: list[tuple[int, Finding]] = []
    stops = False
    try:
        result = _library.call("count_step", where=_caller.where(_caller.user_frame()))
        stops = bool(result["stop"])
        found = [(int(each["watch"]), Finding.from_json(each["finding"])) for each in result["findings"]]
    except PythonRaised:  # when the library asked for the subject of a watch
        errors = [each._take_error() for each in list(_open)]
        raise next(each for each in errors if each is not None) from None
    try:
        _after_step(found)
    finally:
        if stops and stop_between_steps is not None:  # a shell has asked for it
            stop_between_steps()
    return None


def _after_step(found: list[tuple[int, Finding]]) -> None:
    """`found`: findings of `watch` on every rank, with the watch's number. Those of `nan_watch` are among what this
    rank publishes."""
    bad_values = _publish.take_bad_values()
    raising = [each for each in _open if each.raise_on_fault]
    numbers = {number for each in raising for number in each._numbers}
    faults = [finding for number, finding in found if number in numbers and finding.is_fault]
    if any(each.is_nan_watch for each in raising):
        faults += bad_values
    if faults:
        raise FaultFound(_report_of(faults))


def _check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentError(f"a {type(optimizer).__name__} is no optimizer of torch.optim")


def _count_steps_of(optimizer: torch.optim.Optimizer) -> None:
    """Counts the optimizer's steps from here on, until no open watch has it."""
    _stepped.clear()
    if optimizer not in _counted:
        _counted[optimizer] = optimizer.register_step_post_hook(_optimizer_stepped)


def _optimizer_stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """A loop with several optimizers steps each of them: a training step begins when one of them comes again."""
    if not _counting.is_counted():
        return
    if _stepped and optimizer not in _stepped:
        _stepped.add(optimizer)
        return _after_step([])
    _stepped.clear()
    _stepped.add(optimizer)
    step()


class Watch:
    """A watch, from `watch`, `watch_grads`, `nan_watch`, `record_operators` or `watch_memory`. It ends with `close`
    or at the end of a `with` block, and otherwise with the program."""

    def __init__(
        self,
        numbers: list[int],
        *,
        raise_on_fault: bool,
        callbacks: _step.Callbacks | None = None,
        is_nan_watch: bool = False,
        optimizers: Iterable[torch.optim.Optimizer] = (),
        hooks: Iterable[torch.utils.hooks.RemovableHandle] = (),
    ) -> None:
        self._numbers = numbers
        self.raise_on_fault = raise_on_fault
        self.is_nan_watch = is_nan_watch
        self._callbacks = callbacks  # the library calls them as long as the watch is open
        self._optimizers = list(optimizers)  # whose steps count
        self._hooks = list(hooks)
        for each in self._optimizers:
            _count_steps_of(each)
        _open.add(self)

    def _take_error(self) -> BaseException | None:
        if self._callbacks is None:
            return None
        error, self._callbacks.error = self._callbacks.error, None
        return error

    def close(self) -> None:
        """Ends the watch. Local."""
        _close(self._numbers)
        _open.discard(self)
        for each in self._optimizers:
            if each in _counted and not any(each is one for other in _open for one in other._optimizers):
                _counted.pop(each).remove()
                _stepped.discard(each)
        self._optimizers.clear()
        for hook in self._hooks:
            hook.remove()
        _publish.flush()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cost(self) -> dict[str, float]:
        """For `watch`: steps, checks, the seconds spent in checks, and the seconds since the watch began."""
        total: dict[str, float] = {}
        for each in self._numbers:
            for key, value in _library.call("watch_cost", watch=each).items():
                total[key] = max(total.get(key, 0), value) if key in ("steps", "of_seconds") else \
                    total.get(key, 0) + value
        return total

    def status(self) -> dict[str, float]:
        """For `nan_watch`: how many steps, gradients, parameters and losses were checked, and how many steps were
        bad."""
        if not self.is_nan_watch or not self._numbers:
            raise ArgumentError("status() is that of a nan_watch that is open; this watch is "
                                + ("closed" if self.is_nan_watch else "another one"))
        return dict(_library.call("nan_status", watch=self._numbers[0]))


def _close(numbers: list[int]) -> None:
    for each in numbers:
        _library.call("close", watch=each)
    numbers.clear()


def _opened(result: dict[str, Any]) -> int:
    """The number of the watch. Raises FaultFound where the ranks did not meet."""
    if "watch" in result:
        return int(result["watch"])
    _publish.flush()
    raise FaultFound(Report.from_json(result))


def watch(
    value: Any,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    every: int = 10,
    method: str = "fingerprint",
    name: str | None = None,
    ranks: Ranks = None,
    deadline: Deadline = 10.0,
    raise_on_fault: bool = False,
) -> Watch:
    """Verifies `value` (a module, or what verify takes) and the state of `optimizer` every so many steps while training
    runs, so that a difference is found near the step in which it appeared.

        watching = lockstep.watch(model, optimizer, every=10)
        for …:
            …
            optimizer.step()

    Every rank calls it and runs the same number of steps. A difference is logged once, with the steps between which it
    appeared; with `raise_on_fault` `optimizer.step()` raises FaultFound on every rank. Without an optimizer,
    `lockstep.step()` counts. Raises FaultFound if some ranks do not call it.

    Parameters that the first ten steps have not changed are a note, and a fault if the optimizer has none of the
    model's. If a rank does not come to two checks in a row, nothing is compared any more.
    """
    if every < 1:
        raise ArgumentError(f"watch: every {every} steps? It takes 1 or more")
    if optimizer is not None:
        _check_optimizer(optimizer)
    common = _call.common("watch", name, _call.ranks_or_own(value, ranks), deadline, None)
    common.pop("step")
    callbacks = _step.Callbacks()
    numbers: list[int] = []
    objects: list[tuple[str, Any]] = [(common["name"], value)]
    if optimizer is not None and optimizer is not value:
        objects.append(("optimizer", optimizer))
    model = value if isinstance(value, torch.nn.Module) else None
    try:
        for key, each in objects:
            others = each is model and model is not None and optimizer is not None and \
                _describe.steps_others(optimizer, model)
            numbers.append(_watch_one(each, key, model, every, method, common, callbacks, others))
    except BaseException:
        _close(numbers)
        raise
    optimizers = [] if optimizer is None else [optimizer]
    return Watch(numbers, raise_on_fault=raise_on_fault, callbacks=callbacks, optimizers=optimizers)


def _watch_one(
    value: Any,
    name: str,
    model: torch.nn.Module | None,
    every: int,
    method: str,
    common: dict[str, Any],
    callbacks: _step.Callbacks,
    steps_others: bool,
) -> int:
    def describe(_: int) -> None:
        description = _describe.describe(value, name, model)
        _library.give_subject(description.tensors.list, description.json)

    description = _describe.describe(value, name, model)
    arguments = {
        **common,
        "name": name,
        "step": None,
        "subject": description.json,
        "type": description.json["type"],
        "subject_function": callbacks.address(describe),
        "every": every,
        "steps_others": steps_others,
        "method": method,
        "rtol": 1e-5,
        "atol": 1e-8,
    }
    return _opened(callbacks.run("watch", description.tensors.list, **arguments))


def watch_grads(value: Any) -> Watch:
    """Observes each gradient of this rank before the reduction, so that `grads` knows what backward made. Local, but
    `grads` needs it on every rank. Costs one read of each gradient in backward.

    Of modules with divided parameters (DTensor, FullyShardedDataParallel), whose gradients are reduced before backward
    ends, it observes the inputs of forward instead: whether ranks read the same batch."""
    tensors = _describe.Tensors()
    subject = _describe.gradients(value, "", tensors)
    groups = [each for each in (_group.name(),) if each is not None]
    if _describe.is_ddp(value):
        groups.append(str(value.process_group.group_name))
    result = _library.call("watch_grads", tensors.list, subject=subject, groups=sorted(set(groups)))
    divided = isinstance(value, torch.nn.Module) and _sharding.is_divided(value)
    hooks = [_describe.observe_inputs(value)] if divided else []
    return Watch([int(result["watch"])], raise_on_fault=False, hooks=hooks)


def nan_watch(
    *objects: Any,
    deadline: Deadline = 10.0,
    raise_on_fault: bool = False,
) -> Watch:
    """Looks for NaN and Inf while training runs: in every loss that backward begins with, every gradient when backward
    accumulates it (before the reduction), and every parameter when an optimizer writes it.

        watching = lockstep.nan_watch(model, optimizer)

    Each rank checks and logs its own values. Modules give parameters their names; steps of optimizers are counted. With
    `raise_on_fault` `optimizer.step()` raises FaultFound on the rank that has the value. Every rank calls it.
    `nan_trace` then runs the step again and names the operator.
    """
    for each in objects:
        if not isinstance(each, (torch.optim.Optimizer, torch.nn.Module)):
            raise ArgumentError(f"nan_watch takes modules and optimizers; a {type(each).__name__} is neither")
    if not any(each.is_nan_watch for each in _open):
        _publish.take_bad_values()  # of a watch that is closed
    arguments = _call.common("nan_watch", "", None, deadline, None, object_of_call=False)
    tensors = _describe.Tensors()
    arguments["names"] = _describe.names(tensors, *objects)
    number = _opened(_library.call("nan_watch", tensors.list, **arguments))
    optimizers = [each for each in objects if isinstance(each, torch.optim.Optimizer)]
    return Watch([number], raise_on_fault=raise_on_fault, is_nan_watch=True, optimizers=optimizers)


def record_operators() -> Watch:
    """Records the operators of the calling thread and of its backward, for `timeline`. Local. One at a time."""
    return Watch([int(_library.call("record_operators")["watch"])], raise_on_fault=False)


def watch_memory() -> Watch:
    """Counts torch's allocations of the calling thread, for `memory`. Local. One at a time."""
    return Watch([int(_library.call("watch_memory")["watch"])], raise_on_fault=False)


@atexit.register
def _at_exit() -> None:
    # These are findings that nobody has asked for since: those of nan_watch after the last step.
    try:
        _publish.flush()
    except LockstepError:  # the program is ending, and its own error is what counts
        pass
