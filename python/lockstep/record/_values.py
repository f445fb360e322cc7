"""The state of a program's objects as tensors and a text, which a recording keeps. The text has only values of JSON: a
recording is data, and reading one runs nothing."""

from __future__ import annotations

import json
import random
import sys
from typing import Any, Callable

import torch

from lockstep.core.errors import ArgumentError, LockstepError

class Taken:
    """Tensors, their names for messages, and the values that refer to them by index."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.names: list[str] = []

    def add(self, tensor: torch.Tensor, name: str) -> int:
        self.tensors.append(local(tensor.detach()))
        self.names.append(name)
        return len(self.tensors) - 1

    def text(self, values: Any) -> str:
        """The text of `values` and of the tensors' shapes and dtypes, for tensors_and_values()."""
        return json.dumps([values, [[str(each.dtype).removeprefix("torch."), list(each.shape)] for each in self.tensors]])


def tensors_and_values(text: str) -> tuple[list[torch.Tensor], Any]:
    """New tensors without values like the recorded ones, and the values that refer to them."""
    values, described = json.loads(text)
    return [torch.empty(shape, dtype=getattr(torch, dtype)) for dtype, shape in described], values


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a DTensor; any other tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def encode(value: Any, taken: Taken, name: str) -> Any:
    """What JSON can hold: numbers and texts as they are, everything else as [kind, …]."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return ["tensor", taken.add(value, name)]
    if isinstance(value, dict):
        return ["dict", [[encode(key, taken, name), encode(each, taken, f"{name}[{key!r}]")] for key, each in value.items()]]
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [encode(each, taken, f"{name}[{index}]") for index, each in enumerate(value)]]
    if type(value).__module__ == "numpy":
        return ["numpy", taken.add(torch.from_numpy(value.copy()), name)] if hasattr(value, "shape") and value.shape \
            else encode(value.item(), taken, name)
    raise ArgumentError(f"{name} is a {type(value).__name__}, which a recording does not keep: it keeps tensors, numbers, "
                        "texts, lists and dicts")


def decode(values: Any, tensor_at: Callable[[int], torch.Tensor], current: Any = None) -> Any:
    """The value that `encode` had. Where `current`, the value of this run, has a tensor of the same shape and dtype at a
    place, that tensor gets the recorded elements and is used, so that its aliases, and DTensors, stay."""
    if not isinstance(values, list):
        return values
    kind, content = values
    if kind == "tensor":
        recorded = tensor_at(content)
        if not isinstance(current, torch.Tensor) or local(current).shape != recorded.shape or current.dtype != recorded.dtype:
            return recorded
        with torch.no_grad():
            local(current.detach()).copy_(recorded)
        return current
    if kind == "numpy":
        return tensor_at(content).numpy()
    if kind == "dict":
        known = current if isinstance(current, dict) else {}
        keys = [decode(key, tensor_at) for key, _ in content]
        return {key: decode(each, tensor_at, known.get(key)) for key, (_, each) in zip(keys, content)}
    known_list = current if isinstance(current, (list, tuple)) and len(current) == len(content) else [None] * len(content)
    items = [decode(each, tensor_at, now) for each, now in zip(content, known_list)]
    return items if kind == "list" else tuple(items)


def tensors_of(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Parameters and buffers, also those that a state_dict leaves out."""
    return [*module.named_parameters(), *module.named_buffers()]


def take_state(objects: tuple[Any, ...], taken: Taken) -> Any:
    """The state of the objects: the tensors of modules, and the state_dict() of everything else."""
    values: list[Any] = []
    for number, each in enumerate(objects):
        if isinstance(each, torch.nn.Module):
            values.append(["list", [["tensor", taken.add(tensor, name)] for name, tensor in tensors_of(each)]])
        else:
            values.append(encode(each.state_dict(), taken, type(each).__name__))
    return values


def set_state(objects: tuple[Any, ...], values: Any, tensor_at: Callable[[int], torch.Tensor]) -> None:
    if len(objects) != len(values):
        raise LockstepError(f"the recorded step was given {len(values)} objects, and this one {len(objects)}")
    for each, recorded in zip(objects, values):
        if not isinstance(each, torch.nn.Module):
            each.load_state_dict(decode(recorded, tensor_at, each.state_dict()))
            continue
        mine = [tensor for _, tensor in tensors_of(each)]
        if len(mine) != len(recorded[1]):
            raise LockstepError(f"the recorded {type(each).__name__} has {len(recorded[1])} parameters and buffers, and "
                                f"this one {len(mine)}")
        for tensor, result in zip(mine, decode(recorded, tensor_at, mine)):
            if tensor is not result:
                raise LockstepError(f"a tensor of the recorded {type(each).__name__} is of shape {list(result.shape)}, and "
                                    f"here of {list(local(tensor).shape)}")


def take_generators(taken: Taken) -> Any:
    values: dict[str, Any] = {"torch": torch.get_rng_state(), "random": list(random.getstate())}
    values["random"][1] = torch.tensor(values["random"][1], dtype=torch.int64)
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        name, keys, *rest = numpy.random.get_state()
        values["numpy"] = [name, torch.from_numpy(keys.astype("int64")), *rest]
    return encode(values, taken, "generators")


def set_generators(values: dict[str, Any]) -> None:
    torch.set_rng_state(values["torch"])
    version, state, gauss = values["random"]
    random.setstate((version, tuple(state.tolist()), gauss))
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in values:
        name, keys, *rest = values["numpy"]
        numpy.random.set_state((name, keys.numpy().astype("uint32"), *rest))
