"""The names that the cells of a session find without an import."""

from __future__ import annotations

import os
import random
import sys
from typing import Any, Callable

import torch
import torch.distributed as dist

import lockstep
from lockstep.session import _preempt

_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_GET_WORDS = ("ws", "rank", "grank", "lrank", "pg")


def of_cells(settings: dict[str, Any]) -> dict[str, Any]:
    """`settings`: of the rank (shell/jobs/python_ranks.cpp)."""
    return {
        "rank": settings["rank"],
        "world_size": settings["world_size"],
        "local_rank": settings["rank"],
        "node_rank": 0,
        "gpu_id": settings["gpu_id"],
        "device": torch.device(settings["device"]),
        "torch": torch,
        "dist": dist,
        "lockstep": lockstep,
        "get": get,
        "set_seed": set_seed,
        "on_preempt": _preempt.on_preempt,
        "arg": _arguments(settings["arguments"]),
    }


def get(what: str) -> Any:
    """get("ws"): the world size; "rank" and "grank": the number of this rank; "lrank": that on its machine; "pg": the
    process group."""
    if what == "ws":
        return dist.get_world_size()
    if what in ("rank", "grank"):
        return dist.get_rank()
    if what == "lrank":
        return int(os.environ["LOCAL_RANK"])
    if what == "pg":
        return dist.group.WORLD
    raise ValueError(f'get("{what}"): there are {", ".join(_GET_WORDS)}')


def set_seed(seed: int) -> None:
    """Seeds the generators of torch (of all devices), of Python and, where it is loaded, of NumPy."""
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


def seed_afresh() -> None:
    """Gives each rank random numbers of its own before a cell seeds them, as separate processes have. The ranks are
    copies of one process."""
    random.seed()
    torch.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _arguments(given: dict[str, str]) -> Callable[..., Any]:
    def arg(name: str, default: Any = None) -> Any:
        """Returns what `--arg NAME=VALUE` gave, as a value of the type of `default`, or `default` where nothing was
        given."""
        if name not in given:
            if default is None:
                raise KeyError(f'no --arg {name}=VALUE was given; arg("{name}", DEFAULT) has a default')
            return default
        text = given[name]
        if isinstance(default, bool):
            if text.lower() not in _TRUTHS:
                raise ValueError(f"--arg {name}={text}: it is true or false")
            return _TRUTHS[text.lower()]
        return text if default is None else type(default)(text)

    return arg
