"""What every inspector does around its operator: the common options, the caller's line, publishing, raising."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Iterable, Sequence, Union

import torch

from lockstep.core import _caller, _group, _library
from lockstep.core.errors import ArgumentError
from lockstep.core.report import FaultFound, Report
from lockstep.inspectors import _publish
from lockstep.subject import _describe
from lockstep.subject._step import Callbacks

Ranks = Union[Iterable[int], int, None]
Deadline = Union[float, timedelta]


def rank_list(ranks: Ranks) -> list[int] | None:
    if "LOCKSTEP_REPLAY_RANK" in os.environ:  # the other ranks are not there
        return [int(os.environ["LOCKSTEP_REPLAY_RANK"])]
    if ranks is None:
        return None
    if isinstance(ranks, int):
        return [ranks]
    result = sorted({int(each) for each in ranks})
    if not result:
        raise ArgumentError("ranks: the list is empty. Leave it out for all ranks")
    return result


def common(
    function: str, name: str | None, ranks: Ranks, deadline: Deadline, step: int | None, *, object_of_call: bool = True
) -> dict[str, Any]:
    """The arguments that all operators have. Findings name the object by `name`, or as the caller wrote it."""
    frame = _caller.user_frame()
    seconds = deadline.total_seconds() if isinstance(deadline, timedelta) else float(deadline)
    if not seconds > 0:
        raise ArgumentError(f"deadline: {seconds} s? It is a number of seconds above 0")
    if name is None:
        name = _caller.argument_text(frame, function) if object_of_call else ""
    if step is None and _library.is_loaded():
        counted = int(_library.call("steps")["steps"])
        step = counted if counted > 0 else None
    return {
        "name": name,
        "ranks": rank_list(ranks),
        "deadline": seconds,
        "step": step,
        "group": _group.name(),
        "where": _caller.where(frame),
    }


def run(
    operator: str,
    tensors: Sequence[torch.Tensor],
    arguments: dict[str, Any],
    *,
    raise_on_fault: bool,
    callbacks: Callbacks | None = None,
) -> Report:
    """Calls the operator of an inspector, and publishes what it found."""
    _publish.flush()  # what watches have found before
    try:
        result = (callbacks or Callbacks()).run(operator, tensors, **arguments)
    finally:
        _publish.flush(of_call=True)
    report = Report.from_json(result)
    if raise_on_fault and not report.ok:
        raise FaultFound(report)
    return report


def ranks_or_own(value: Any, ranks: Ranks) -> Ranks:
    """`ranks`, or those over which `value` is reduced where they are not all of the job."""
    if ranks is not None:
        return ranks
    own = _describe.ranks_of(value)
    return None if own is None or len(own) == torch.distributed.get_world_size() else own
