"""The default process group of torch.distributed, and what the launcher says where the program has made none."""

from __future__ import annotations

from typing import Any

import torch

from lockstep.core import _backend, _library


def is_there() -> bool:
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized()


def name() -> str | None:
    """The name of the group in c10d's registry; None without a group."""
    return str(torch.distributed.group.WORLD.group_name) if is_there() else None  # type: ignore[union-attr]


def _of_launcher() -> dict[str, Any]:
    return _library.call("launcher_rank")


def has_launcher() -> bool:
    """Whether a launcher has started this process as a rank."""
    return bool(_of_launcher()["is_known"])


def rank() -> int:
    return torch.distributed.get_rank() if is_there() else int(_of_launcher()["rank"])


def number() -> int:
    """The number of this rank in findings."""
    return _backend.numbers[rank()] if _backend.numbers else rank()


def ranks_of(group: Any) -> list[int]:
    """The ranks of `group` in findings: their numbers in the session, which differ from torch's once its default group
    does not have all ranks."""
    ranks: list[int] = torch.distributed.get_process_group_ranks(group)
    return [_backend.numbers[each] if each >= 0 else -1 - each for each in ranks] if _backend.numbers else ranks


def world_size() -> int:
    return torch.distributed.get_world_size() if is_there() else int(_of_launcher()["world_size"])
