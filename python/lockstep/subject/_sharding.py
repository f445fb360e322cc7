"""Tensors that are divided among ranks (DTensor, FullyShardedDataParallel): the part of this rank, how it is divided,
and which part it is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch

from lockstep.core import _group


@dataclass(frozen=True)
class Part:
    local: torch.Tensor | None
    """None on a rank outside of the mesh."""
    layout: str
    place: str
    """Which part it is: ranks that have the same place, in whatever mesh, should have the same part."""
    mesh: list[int]
    """The ranks among which the tensor is divided and replicated."""
    trainable: bool


@dataclass(frozen=True)
class FlatUnit:
    """The parameters that one FullyShardedDataParallel keeps as one flat tensor."""

    name: str
    part: Part
    gradient: torch.Tensor | None
    managed: set[int]
    """Identities of the parameters of the module that are views of it."""


def is_dtensor(value: Any) -> bool:
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def local_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The part of this rank; the tensor itself if it is not divided."""
    if not is_dtensor(tensor):
        return tensor
    with torch.no_grad():
        local = tensor.to_local()  # type: ignore[attr-defined]
    return local if isinstance(local, torch.Tensor) else None


def is_flattened(parameter: torch.Tensor) -> bool:
    """Whether FullyShardedDataParallel divides the parameter as a flat tensor or a part of one."""
    return bool(getattr(parameter, "_is_flat_param", False) or getattr(parameter, "_fsdp_flattened", False))


def is_divided(module: torch.nn.Module) -> bool:
    return bool(flat_units(module)) or any(is_dtensor(each) for each in module.parameters())


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).replace("torch.", "")


def part_of(tensor: torch.Tensor) -> Part | None:
    """This rank's part of a DTensor; None for a tensor that is not divided."""
    if not is_dtensor(tensor):
        return None
    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    names = mesh.mesh_dim_names
    layout = (
        f"{list(tensor.shape)} {_dtype(tensor)} {', '.join(_placement(each) for each in placements)} over a mesh "
        f"{list(mesh.mesh.shape)}{' of ' + ', '.join(names) if names else ''}"
    )
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return Part(None, layout, "", [], tensor.requires_grad)
    place = [None if placement.is_replicate() else here for placement, here in zip(placements, coordinate)]
    ranks = [int(each) for each in mesh.mesh.flatten().tolist()]
    return Part(local_of(tensor), layout, str(place), ranks, tensor.requires_grad)


def _placement(placement: Any) -> str:
    if placement.is_shard():
        return f"Shard({placement.dim})"
    return "Replicate" if placement.is_replicate() else type(placement).__name__


def flat_units(module: torch.nn.Module) -> list[FlatUnit]:
    """The flat units of FullyShardedDataParallel; none for other modules, and for fully_shard, which makes DTensors."""
    if "torch.distributed.fsdp.fully_sharded_data_parallel" not in sys.modules:
        return []
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

    units = []
    for name, each in module.named_modules():
        handle = getattr(each, "_handle", None) if isinstance(each, FullyShardedDataParallel) else None
        if handle is None:
            continue
        flat = handle.flat_param
        group = each.process_group
        whole = each.sharding_strategy == ShardingStrategy.NO_SHARD
        place = "" if whole else f"{group.rank()} of {group.size()}"
        mesh = set(_group.ranks_of(group))
        if each.sharding_strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
            mesh |= set(_group.ranks_of(each._inter_node_pg))
        shapes = ", ".join(f"{key} {list(shape)}" for key, shape in zip(flat._fqns, flat._shapes))
        layout = f"{each.sharding_strategy.name}: {shapes}, {_dtype(flat)}"
        managed = {id(flat), *(id(one) for one in getattr(flat, "_params", None) or [])}
        local = getattr(flat, "_local_shard", None)
        gradient = flat.grad if flat.grad is not None else getattr(flat, "_saved_grad_shard", None)
        part = Part(flat if local is None else local, layout, place, sorted(mesh), flat.requires_grad)
        units.append(FlatUnit(f"{name}.flat" if name else "flat", part, gradient, managed))
    return units
