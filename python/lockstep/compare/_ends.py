"""The end of a job that is recorded: no rank leaves before all have made their steps."""

from __future__ import annotations

import contextlib
import datetime

import torch

_LEAVING = datetime.timedelta(seconds=10)  # for which rank 0 waits for the others to leave


def wait_for_ranks(limit: float) -> list[int]:
    """Returns the ranks that have not come here within `limit` seconds. The ranks meet in the store, since a rank that
    never comes may be in any collective."""
    from torch.distributed.distributed_c10d import _get_default_store

    store, rank, world_size = _get_default_store(), torch.distributed.get_rank(), torch.distributed.get_world_size()
    keys = [f"lockstep/compare/ended/{each}" for each in range(world_size)]
    store.set(keys[rank], "1")
    try:
        store.wait(keys, datetime.timedelta(seconds=limit))
    except RuntimeError:
        return [each for each, key in enumerate(keys) if not store.check([key])]
    # Rank 0 may be the one that has the store, so it leaves last.
    if rank > 0 and store.add("lockstep/compare/left", 1) == world_size - 1:
        store.set("lockstep/compare/all have left", "1")
    elif rank == 0:
        with contextlib.suppress(RuntimeError):  # one that has died has not left
            store.wait(["lockstep/compare/all have left"], _LEAVING)
    return []


def words(ranks: list[int]) -> str:
    """"rank 1 has", "ranks 1, 2 and 40 others have"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    shown, others = ranks[:8], len(ranks) - 8
    return f"ranks {', '.join(map(str, shown))}{f' and {others} others' if others > 0 else ''} have"
