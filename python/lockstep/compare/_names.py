"""Names of modules and parameters as the model without wrappers has them."""

from __future__ import annotations

import collections.abc
import dataclasses
from typing import Any, Iterator

import torch

# The classes of wrappers, and the attribute in which each holds its module.
_WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "FullyShardedDataParallel":
             "_fsdp_wrapped_module", "OptimizedModule": "_orig_mod", "CheckpointWrapper": "_checkpoint_wrapped_module"}


def _unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    while (inner := getattr(module, _WRAPPERS.get(type(module).__name__, ""), None)) is not None:
        module = inner
    return module


def type_of(module: torch.nn.Module) -> str:
    """The name of the module's class before fully_shard, which makes "FSDPLinear" of "Linear"."""
    name = type(module).__name__
    return name[4:] if name.startswith("FSDP") and len(type(module).__mro__) > 2 and hasattr(module, "unshard") else name


def modules_of(root: torch.nn.Module, prefix: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules with their names. A module that the model has twice has its first name."""
    seen: set[int] = set()

    def walk(module: torch.nn.Module, name: str) -> Iterator[tuple[str, torch.nn.Module]]:
        module = _unwrapped(module)
        if id(module) in seen:
            return
        seen.add(id(module))
        yield name, module
        for key, child in module.named_children():
            yield from walk(child, f"{name}.{key}" if name else key)

    return walk(root, prefix)


def parameters_of(modules: dict[str, torch.nn.Module]) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Parameters of the result of modules_of(), with their names. A parameter that is tied has its first name."""
    seen: set[int] = set()
    for name, module in modules.items():
        for key, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{name}.{key}" if name else key, parameter


def tensors_of(value: Any, name: str = "", inside: frozenset[int] = frozenset()) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in what a module returns or is given: "attention", "attention[0]", "attention[hidden]"."""
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    pairs: Any
    if isinstance(value, collections.abc.Mapping):
        pairs = value.items()
    elif isinstance(value, (list, tuple)):
        pairs = enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    else:
        return
    if id(value) in inside:  # of one that refers to it
        return
    for key, each in pairs:
        yield from tensors_of(each, f"{name}[{key}]", inside | {id(value)})
