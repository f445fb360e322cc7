"""The layout of the buckets of a DistributedDataParallel, on which the order of sums depends. It changes after the first
step: in the order in which the gradients came."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import torch
import torch.distributed as dist

UNKNOWN = "the layout of its buckets is not known"
failures: dict[int, str] = {}
"""Why wrappers could not follow into the default group, by their id."""
_laid_out: weakref.WeakKeyDictionary[Any, tuple[Any, list[list[int]]]] = weakref.WeakKeyDictionary()
"""By wrapper: the reducer that lay_out() has made (a weak reference), and the ids of the parameters of its buckets."""


def layout_of(wrapper: Any) -> list[list[int]] | None:
    """The parameters of each bucket, by their index among those that are reduced: without those that were frozen since the
    buckets were made. None where the layout is not known: torch has no answer before the first backward of a sparse gradient,
    and parameters that were frozen when the buckets were made are in none. Raises OutOfMemoryError: torch makes buckets."""
    index = {id(each): i for i, each in enumerate(wrapper._build_params_for_reducer()[0])}
    try:
        buckets = [[id(each) for each in bucket.parameters()] for bucket in wrapper.reducer._get_zeros_like_grad_buckets()]
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # of a sparse gradient
        reducer, buckets = _laid_out.get(wrapper, (lambda: None, []))
        if reducer() is not wrapper.reducer or wrapper._has_rebuilt_buckets:
            return None
    layout = [known for bucket in buckets if (known := [index[each] for each in bucket if each in index])]
    return layout if sum(map(len, layout)) == len(index) else None


def counts_of(wrapper: Any) -> tuple[int, int]:
    """How many parameters a reducer that is made now has, and how many this one has: some may be frozen since."""
    return len(wrapper._build_params_for_reducer()[0]), int(wrapper._get_ddp_logging_data()["num_parameter_tensors"])


def begin_again(wrapper: Any) -> None:
    """Lets the wrapper count steps from 0 again: on all ranks, since the first step compares them."""
    wrapper._has_rebuilt_buckets = False
    wrapper.reducer._reset_state()


def move(wrapper: Any, before: Any, now: Any) -> None:
    """Lets the wrapper go on in the group `now`, with its hooks. Local; its next forward has to be a first one on all
    ranks. A step that was cut off is forgotten. A wrapper whose layout is not known stays, and is among `failures`."""
    layout = layout_of(wrapper)
    if layout is None:
        failures[id(wrapper)] = UNKNOWN
        return
    wrapper.process_group = now
    wrapper._comm_hooks = [(hook, now if state is before else state) for hook, state in wrapper._comm_hooks]
    for _, state in wrapper._comm_hooks:
        if getattr(state, "process_group", None) is before:
            state.process_group = now
    lay_out(wrapper, layout)
    begin_again(wrapper)


def lay_out(wrapper: Any, layout: list[list[int]]) -> None:
    """Makes the reducer anew, with these buckets and the same hooks."""
    c10d: Any = dist
    hook_name = str(wrapper._get_ddp_logging_data().get("comm_hook", ""))
    parameters, expects_sparse = wrapper._build_params_for_reducer()
    by_size = c10d._compute_bucket_assignment_by_size

    def given(*_: Any, **__: Any) -> tuple[list[list[int]], list[int]]:
        """Returns the layout in reverse: the wrapper turns the order around."""
        return layout[::-1], [sys.maxsize] * len(layout)

    c10d._compute_bucket_assignment_by_size = given
    try:
        wrapper._ddp_init_helper(parameters, expects_sparse, wrapper._build_debug_param_to_name_mapping(parameters),
                                 wrapper.static_graph)
    finally:
        c10d._compute_bucket_assignment_by_size = by_size
    _laid_out[wrapper] = weakref.ref(wrapper.reducer), [[id(parameters[each]) for each in bucket] for bucket in layout]
    for hook, state in wrapper._comm_hooks:
        c10d._register_comm_hook(wrapper.reducer, state, hook)
    if not wrapper._comm_hooks and hook_name.startswith("BuiltinCommHookType."):  # the wrapper does not keep these
        wrapper._register_builtin_comm_hook(getattr(c10d.BuiltinCommHookType, hook_name.partition(".")[2]))
