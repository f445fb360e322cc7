"""Parameters of FullyShardedDataParallel, which lays those of a module one after the other and gives each rank one
range of them. So a rank has a range of a parameter's elements in row-major order, which may be all or none of them."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

import torch

from lockstep.compare import _places


class Part(NamedTuple):
    """The part of an optimizer's parameter that has one name in the model."""

    name: str
    place: _places.Place | None = None  # None: the tensor has its own place, or is the whole
    span: slice | None = None  # None: all elements of what the optimizer has
    shape: torch.Size | None = None  # None: that of the tensor
    is_here: bool = True  # this rank has some of it

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The part of `tensor`, which is the parameter or its gradient."""
        if self.span is not None:
            tensor = tensor.detach()[self.span]
        return tensor if self.shape is None else tensor.reshape(self.shape)


def _parts_of(flat: Any, name_of_module: dict[int, str]) -> Iterator[tuple[Any, Part]]:
    originals = flat._params or [None] * len(flat._param_infos)
    for original, info, shape, shard in zip(originals, flat._param_infos, flat._shapes, flat._shard_param_infos):
        module = name_of_module.get(id(info.module))
        if module is None:
            continue
        name = f"{module}.{info.param_name}" if module else info.param_name
        begin, count = shard.offset_in_shard or 0, shard.numel_in_shard or 0
        place = None
        if count != shape.numel():
            place = _places.Place([shape.numel()], [shard.intra_param_start_idx or 0], _places.PLACED | _places.FLAT)
            shape = torch.Size([count])
        if original is not None:  # use_orig_params=True
            yield original, Part(name, place, None, shape, shard.in_shard)
        else:
            yield flat, Part(name, place, slice(begin, begin + count), shape, shard.in_shard)


def parts_of(root: torch.nn.Module, name_of_module: dict[int, str]) -> dict[int, list[Part]]:
    """The parts, by the identity of the parameter that the optimizer has."""
    found: dict[int, list[Part]] = {}
    for module in root.modules():
        handle: Any = getattr(module, "_handle", None) if type(module).__name__ == "FullyShardedDataParallel" else None
        if handle is not None:
            for parameter, part in _parts_of(handle.flat_param, name_of_module):
                found.setdefault(id(parameter), []).append(part)
    return found
