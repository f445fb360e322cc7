"""The end of a job that is recorded: no rank leaves before all have made their steps."""

from __future__ import annotations

import datetime
import time

import torch

_LEAVING = 10.0  # seconds for which the rank that has the store waits for the others to leave


def wait_for_ranks(limit: float) -> list[int]:
    """Returns the ranks that have not come here within `limit` seconds. The store says so, since a rank that never comes
    may be in any collective."""
    from torch.distributed.distributed_c10d import _get_default_store

    store, rank, world_size = _get_default_store(), torch.distributed.get_rank(), torch.distributed.get_world_size()
    keys = [f"lockstep/compare/ended/{each}" for each in range(world_size)]
    store.set(keys[rank], "1")
    try:
        store.wait(keys, datetime.timedelta(seconds=limit))
    except RuntimeError:
        return [each for each, key in enumerate(keys) if not store.check([key])]
    left = store.add("lockstep/compare/left", 1)
    deadline = time.monotonic() + _LEAVING
    while rank == 0 and left < world_size and time.monotonic() < deadline:  # it may be the one that has the store
        time.sleep(0.01)
        left = store.add("lockstep/compare/left", 0)
    return []


def words(ranks: list[int]) -> str:
    """"rank 1 has", "ranks 1, 2 and 40 others have"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    shown, others = ranks[:8], len(ranks) - 8
    return f"ranks {', '.join(map(str, shown))}{f' and {others} others' if others > 0 else ''} have"
