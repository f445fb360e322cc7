"""Which part of the whole a tensor of this rank is, as a DTensor describes itself."""

from __future__ import annotations

from typing import Any

import torch

from lockstep.subject import _sharding

# Flags of a piece (inspectors/compare/recording.h).
PLACED, PARTIAL, ABSENT, MEAN, FLAT = 1, 2, 4, 8, 16


class Place:
    """`shape` is that of the whole tensor, and `offset` that of this part in it."""

    def __init__(self, shape: list[int], offset: list[int], flags: int = 0, lead: int = 0) -> None:
        self.shape, self.offset, self.flags, self.lead = shape, offset, flags, lead


_known: dict[Any, Place | None] = {}


def _partial_lead(mesh: Any, placements: Any) -> int:
    """The lowest rank of those whose parts are added to this rank's."""
    ranks, coordinate = mesh.mesh, mesh.get_coordinate()
    for dimension in reversed(range(len(placements))):
        if not placements[dimension].is_partial():
            ranks = ranks.select(dimension, coordinate[dimension])
    return int(ranks.min())


def _place_of(tensor: Any) -> Place | None:
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh, placements = tensor.device_mesh, tensor.placements
    flags, lead = PLACED, 0
    partial = [each for each in placements if each.is_partial()]
    if partial:
        # Parts of an embedding that is divided by rows have other rows' values until they are reduced.
        if any(type(each).__name__ != "Partial" or each.reduce_op not in ("sum", "avg") for each in partial):
            return None
        flags |= PARTIAL | (MEAN if any(each.reduce_op == "avg" for each in partial) else 0)
        lead = _partial_lead(mesh, placements)
    _, offset = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    return Place([int(each) for each in tensor.shape], [int(each) for each in offset], flags, lead)


def local_and_place(tensor: torch.Tensor) -> tuple[torch.Tensor, Place] | None:
    """This rank's part and its place; None for a tensor that can't be recorded: one without a part on this rank, or a
    maximum that is not reduced yet."""
    if not _sharding.is_dtensor(tensor):
        if type(tensor).__name__ == "AsyncCollectiveTensor":
            tensor = tensor.wait()  # type: ignore[attr-defined]
        return tensor, Place(list(tensor.shape), [0] * tensor.dim())
    key = (tuple(tensor.shape), tensor.device_mesh, tuple(tensor.placements))  # type: ignore[attr-defined]
    if key not in _known:
        _known[key] = _place_of(tensor)
    place, local = _known[key], _sharding.local_of(tensor)
    if place is None or local is None or tensor.device_mesh.get_coordinate() is None:  # type: ignore[attr-defined]
        return None
    if type(local).__name__ == "AsyncCollectiveTensor":
        local = local.wait()  # type: ignore[attr-defined]
    if local.numel() == 0:  # torch gives an empty part the shape of the whole, but for its dimension
        place = Place(place.shape, [min(a, b - c) for a, b, c in zip(place.offset, place.shape, local.shape)], place.flags,
                      place.lead)
    return local, place
