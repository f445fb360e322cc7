"""The names of the cells that hold state, and the generators, for `%restart --from` and `%checkpoint`."""

from __future__ import annotations

import keyword
import random
import sys
from typing import Any

import torch
import torch.distributed as dist


def values(names: dict[str, Any]) -> list[tuple[str, Any]]:
    """The values by name, except those of Python itself, and `_`, which means a value that nobody needs."""
    return [(name, names[name]) for name in sorted(filter(is_name, names)) if name != "_" and not name.startswith("__")]


def is_name(name: Any) -> bool:
    """Whether code can use a key of globals() as a name."""
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


def parameters(names: dict[str, Any]) -> dict[int, str]:
    """The names of the parameters of modules, by their id."""
    found: dict[int, str] = {}
    for name, value in values(names):
        if isinstance(value, torch.nn.Module):
            for key, parameter in value.named_parameters():
                found.setdefault(id(parameter), f"{name}.{key}")
    return found


def has_state_dict(value: Any) -> bool:
    """Whether `value` has a state_dict, as a scheduler, a scaler and their like."""
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def form_of(value: Any) -> list[str]:
    return [str(value.dtype), str(tuple(value.shape))] if isinstance(value, torch.Tensor) else [type(value).__name__]


def gather(value: Any) -> list[Any]:
    """The values of all ranks of the default group. Collective."""
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


def keep_types(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Keeps the types of the state: torch would give it the type of its parameter, also where it had another one."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for index, saved in state.get("state", {}).items():
        if not (isinstance(index, int) and 0 <= index < len(parameters) and isinstance(saved, dict)):
            continue
        mine = optimizer.state.get(parameters[index], {})
        for key, each in saved.items():
            now = mine.get(key)
            if isinstance(each, torch.Tensor) and isinstance(now, torch.Tensor) and now.dtype != each.dtype:
                mine[key] = each.to(now.device)


def text_of(error: BaseException) -> str:
    """The first line of an error: torch adds its own stack."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def read_generators(*, of_all_devices: bool = False) -> dict[str, Any]:
    """The states of the generators of torch, `random` and NumPy; "cuda" is that of the current device, or a list."""
    numpy = sys.modules.get("numpy")
    read_cuda = torch.cuda.get_rng_state_all if of_all_devices else torch.cuda.get_rng_state
    return {
        "torch": torch.get_rng_state(),
        "cuda": read_cuda() if torch.cuda.is_initialized() else None,  # type: ignore[no-untyped-call]
        "random": random.getstate(),
        "numpy": numpy.random.get_state() if numpy is not None else None,
    }


def write_generators(saved: dict[str, Any]) -> None:
    """Sets the generators to the result of read_generators()."""
    torch.set_rng_state(saved["torch"])
    if isinstance(saved["cuda"], list):
        torch.cuda.set_rng_state_all(saved["cuda"])
    elif saved["cuda"] is not None:
        torch.cuda.set_rng_state(saved["cuda"])
    random.setstate(saved["random"])
    numpy = sys.modules.get("numpy")
    if numpy is not None and saved["numpy"] is not None:
        numpy.random.set_state(saved["numpy"])
