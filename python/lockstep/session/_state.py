"""The names of the cells that hold state, and the generators: what `%restart --from` and `%checkpoint` share."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch
import torch.distributed as dist


def values(names: dict[str, Any]) -> list[tuple[str, Any]]:
    """By name, but those of Python itself, and `_`, which means a value that nobody needs."""
    return sorted((name, value) for name, value in names.items() if name != "_" and not name.startswith("__"))


def parameters(names: dict[str, Any]) -> dict[int, str]:
    """The names of the parameters of modules, by their id."""
    found: dict[int, str] = {}
    for name, value in values(names):
        if isinstance(value, torch.nn.Module):
            for key, parameter in value.named_parameters():
                found.setdefault(id(parameter), f"{name}.{key}")
    return found


def has_state_dict(value: Any) -> bool:
    """Of a scheduler, a scaler and their like."""
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def form_of(value: Any) -> list[str]:
    return [str(value.dtype), str(tuple(value.shape))] if isinstance(value, torch.Tensor) else [type(value).__name__]


def gather(value: Any) -> list[Any]:
    """That of each rank of the default group."""
    everything: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everything, value)
    return everything


def words(ranks: list[int]) -> str:
    """`rank 1`, `ranks 0-2,4`: `ranks` are in order."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"


def read_generators(*, of_all_devices: bool = False) -> dict[str, Any]:
    """Of torch, `random` and NumPy; "cuda" is that of the current device, or a list."""
    numpy = sys.modules.get("numpy")
    read_cuda = torch.cuda.get_rng_state_all if of_all_devices else torch.cuda.get_rng_state
    return {
        "torch": torch.get_rng_state(),
        "cuda": read_cuda() if torch.cuda.is_initialized() else None,  # type: ignore[no-untyped-call]
        "random": random.getstate(),
        "numpy": numpy.random.get_state() if numpy is not None else None,
    }


def write_generators(saved: dict[str, Any]) -> None:
    """What read_generators() has returned."""
    torch.set_rng_state(saved["torch"])
    if isinstance(saved["cuda"], list):
        torch.cuda.set_rng_state_all(saved["cuda"])
    elif saved["cuda"] is not None:
        torch.cuda.set_rng_state(saved["cuda"])
    random.setstate(saved["random"])
    numpy = sys.modules.get("numpy")
    if numpy is not None and saved["numpy"] is not None:
        numpy.random.set_state(saved["numpy"])
