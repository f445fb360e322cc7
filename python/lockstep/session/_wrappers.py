"""The layout of the buckets of a DistributedDataParallel, on which the order of sums depends. It changes after the first
step: in the order in which the gradients came."""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist


def layout_of(wrapper: Any) -> list[list[int]]:
    """The parameters of each bucket, by their index among those that are reduced."""
    index = {id(each): i for i, each in enumerate(wrapper._build_params_for_reducer()[0])}
    buckets = wrapper.reducer._get_zeros_like_grad_buckets()
    return [[index[id(each)] for each in bucket.parameters()] for bucket in buckets]


def begin_again(wrapper: Any) -> None:
    """Has it count steps from 0 again: on all ranks alike, since its first step compares with the others."""
    wrapper._has_rebuilt_buckets = False
    wrapper.reducer._reset_state()


def move(wrapper: Any, before: Any, now: Any) -> None:
    """Lets it go on in the group `now`, with its hooks. Local; its next forward has to be a first one on all ranks. A step that
    was cut off is forgotten."""
    layout = layout_of(wrapper)
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
        """The wrapper turns the order around."""
        return layout[::-1], [sys.maxsize] * len(layout)

    c10d._compute_bucket_assignment_by_size = given
    try:
        wrapper._ddp_init_helper(parameters, expects_sparse, wrapper._build_debug_param_to_name_mapping(parameters),
                                 wrapper.static_graph)
    finally:
        c10d._compute_bucket_assignment_by_size = by_size
    for hook, state in wrapper._comm_hooks:
        c10d._register_comm_hook(wrapper.reducer, state, hook)
    if not wrapper._comm_hooks and hook_name.startswith("BuiltinCommHookType."):  # the wrapper does not keep these
        wrapper._register_builtin_comm_hook(getattr(c10d.BuiltinCommHookType, hook_name.partition(".")[2]))
