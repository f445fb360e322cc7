"""Takes objects apart into names, tensors and values for inspectors. Nothing is compared or judged here."""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from typing import Any, Iterator, Mapping

import torch

from lockstep.core import _group, _library
from lockstep.core.errors import ArgumentError
from lockstep.subject import _sharding

Module = torch.nn.Module
Optimizer = torch.optim.Optimizer

STEPS_OTHERS = (
    "none of its parameters is one of the model's, so its steps train nothing of the model: was it built before "
    "fully_shard, or before the model's parameters were replaced? Build it after that"
)
_WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def plain_name(name: str) -> str:
    """The name of a parameter without what torch.compile, FSDP and checkpointing put into it."""
    for each in _WRAPPERS:
        name = name.replace(each, "")
    return name


def joined(prefix: str, name: str) -> str:
    if not prefix or not name:
        return prefix or name
    return prefix + name if name.startswith("[") else f"{prefix}.{name}"


def _uncompiled(module: Any) -> Any:
    """The module that torch.compile wraps, or the module itself."""
    while isinstance(module, Module) and module._modules.get("_orig_mod") is not None:
        module = module._modules["_orig_mod"]
    return module


def wrapper_of(module: Any) -> torch.nn.parallel.DistributedDataParallel | None:
    """The DistributedDataParallel that a module is, also under torch.compile; None for other objects."""
    module = _uncompiled(module)
    return module if isinstance(module, torch.nn.parallel.DistributedDataParallel) else None


def is_ddp(module: Any) -> bool:
    return wrapper_of(module) is not None


def bare(module: Module) -> Module:
    """The module that DistributedDataParallel and torch.compile wrap, or the module itself."""
    wrapper = wrapper_of(module)
    inner = _uncompiled(module if wrapper is None else wrapper.module)
    assert isinstance(inner, Module)
    return inner


def ranks_of(module: Any) -> list[int] | None:
    """The ranks over which DistributedDataParallel reduces; None without it."""
    wrapper = wrapper_of(module)
    return None if wrapper is None else list(_group.ranks_of(wrapper.process_group))


class Tensors:
    """The tensors of a call. JSON refers to them by their index."""

    def __init__(self) -> None:
        self.list: list[torch.Tensor] = []

    def add(self, tensor: torch.Tensor) -> int:
        self.list.append(tensor)
        return len(self.list) - 1


class Description:
    """A subject for the operator `verify` (python/operators/subjects.h)."""

    def __init__(self, name: str, kind: str) -> None:
        self.tensors = Tensors()
        self.json: dict[str, Any] = {
            "name": name, "type": kind, "items": [], "modes": None, "parts": [], "elsewhere": 0, "inputs": None,
            "doubt": None,
        }

    def add_tensor(self, name: str, kind: str, tensor: torch.Tensor | None) -> None:
        if tensor is None:
            return self.add_value(name, kind, None)
        part = _sharding.part_of(tensor)
        if part is None:
            self.json["items"].append({"name": name, "kind": kind, "tensor": self.tensors.add(tensor)})
        else:
            self.add_part(name, kind, part)

    def add_part(self, name: str, kind: str, part: _sharding.Part) -> None:
        """Adds a part. Its division should be equal on all ranks, its contents on those that have the same place."""
        self.add_value(joined(name, "layout"), "value", part.layout)
        if part.local is None:
            self.json["elsewhere"] += 1
        else:
            self._add_local(name, kind, part.local, f"{part.layout}: {part.place}", part.mesh, part.trainable)

    def _add_local(
        self, name: str, kind: str, tensor: torch.Tensor, place: str, mesh: list[int], trainable: bool
    ) -> None:
        self.json["parts"].append({"name": name, "kind": kind, "tensor": self.tensors.add(tensor), "place": place,
                                   "mesh": mesh, "trainable": trainable})

    def add_alone(self, name: str, kind: str, value: Any) -> None:
        """Adds a value that only this rank has, and that is compared with no other."""
        if isinstance(value, torch.Tensor):
            rank = _group.number()
            self._add_local(name, kind, value, f"rank {rank}", [rank], False)

    def add_value(self, name: str, kind: str, value: Any) -> None:
        self.json["items"].append({"name": name, "kind": kind, "value": value})

    def add_any(self, name: str, kind: str, value: Any) -> None:
        """Adds tensors and values, also in containers."""
        if isinstance(value, Module):
            self.add_module(value, name)
        elif isinstance(value, Optimizer):
            self.add_optimizer(value, {}, name)
        elif isinstance(value, torch.Tensor):
            self.add_tensor(name, kind, value)
        elif isinstance(value, torch.Generator):
            self.json["items"].append(
                {"name": name or "state", "kind": "rng", "tensor": self.tensors.add(value.get_state())}
            )
        elif _is_array(value):
            self.add_tensor(name, kind, _tensor_of(value))
        elif _is_scalar(value):
            self.add_any(name, kind, value.item())
        elif value is None or isinstance(value, (bool, int, float, str)):
            self.add_value(name, kind, _plain_value(value))
        elif isinstance(value, (bytes, bytearray)):
            self.add_value(name, kind, value.hex())
        elif isinstance(value, Mapping):
            ordered = isinstance(value, OrderedDict)
            entries = list(value.items()) if ordered else sorted(value.items(), key=lambda each: str(each[0]))
            for key, each in entries:
                self.add_any(joined(name, str(key)), kind, each)
            if not entries:
                self.add_value(name, kind, {})
        elif isinstance(value, (list, tuple)):
            if value and all(isinstance(each, (bool, int, float, str)) for each in value):
                self.add_value(name, kind, [_plain_value(each) for each in value])
                return
            for index, each in enumerate(value):
                self.add_any(f"{name}[{index}]", kind, each)
            if not value:
                self.add_value(name, kind, [])
        elif isinstance(value, (torch.dtype, torch.device, torch.Size)):
            self.add_value(name, kind, str(value))
        else:
            self.add_value(name, "unsupported", type(value).__name__)

    def add_module(self, module: Module, prefix: str = "") -> None:
        inner = bare(module)
        units = _sharding.flat_units(inner)
        managed: set[int] = set()
        for unit in units:
            managed |= unit.managed
            self.add_part(joined(prefix, plain_name(unit.name)), "parameter", unit.part)
        for name, parameter in inner.named_parameters():
            if id(parameter) in managed:
                continue
            if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
                self.add_value(joined(prefix, plain_name(name)), "unsupported", "not initialised")
                continue
            self.add_tensor(joined(prefix, plain_name(name)), "parameter", parameter)
        for name, buffer in inner.named_buffers():
            self.add_tensor(joined(prefix, plain_name(name)), "buffer", buffer)
        modes = [(plain_name(name + ".")[:-1], each.training) for name, each in inner.named_modules()]
        if prefix:
            self.add_value(joined(prefix, "training"), "mode", _modes_text(modes))
        else:
            self.json["modes"] = modes
            self.json["dropout"] = any(each.training and _drops_out(each) for each in inner.modules())
        if any(True for _ in inner.buffers()):
            # The wrapper makes buffers equal at the next forward; in training a forward may have changed them since. This
            # excuses those of a container only where it is so for all of its modules.
            wrapper = wrapper_of(module)
            for key, excused in (("buffers_are_local", wrapper is not None and not wrapper.broadcast_buffers),
                                 ("buffers_are_written", wrapper is not None and wrapper.broadcast_buffers and inner.training)):
                self.json[key] = bool(excused and self.json.get(key, True))

    def doubt(self, is_fault: bool, kind: str, text: str) -> None:
        """Adds a finding in place of the `ok`. It follows from the items: ranks with equal items have the same one."""
        self.json["doubt"] = {"is_fault": is_fault, "kind": kind, "text": text}

    def add_optimizer(self, optimizer: Optimizer, names: Mapping[torch.Tensor, str], prefix: str = "") -> None:
        """Adds an optimizer. A parameter that `names` lacks has the name that its group gives it, or its number."""
        groups = optimizer.param_groups
        for number, group in enumerate(groups):
            of_group = prefix if len(groups) == 1 else joined(prefix, str(number))
            for key, value in group.items():
                if key not in ("params", "param_names"):
                    self.add_any(joined(of_group, key), "hyperparameter", value)
            self.add_value(joined(of_group, "parameters"), "hyperparameter", len(group["params"]))
            own = group.get("param_names") or []
            for index, parameter in enumerate(group["params"]):
                state = optimizer.state.get(parameter)
                if not state:
                    continue
                name = names.get(parameter) or (own[index] if index < len(own) else str(index))
                add = self.add_alone if _sharding.is_flattened(parameter) else self.add_any
                for key, value in state.items():
                    add(joined(joined(of_group, name), str(key)), "state", value)


def _modes_text(modes: list[tuple[str, bool]]) -> str:
    """Returns "train(), norm eval()", as python/operators/subjects.cpp does for a module that is in no container."""
    by_name = dict(modes)
    return ", ".join(f"{name} {'train()' if training else 'eval()'}".strip() for name, training in modes
                     if not name or by_name.get(name.rpartition(".")[0]) != training)


def _drops_out(module: Module) -> bool:
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        return module.p > 0
    share = getattr(module, "dropout", 0)  # of attention and recurrent layers
    return isinstance(share, float) and share > 0


def _plain_value(value: Any) -> Any:
    """The value, as text where it is an integer that is too long for JSON in C++."""
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    # torch does not have float128.
    return (numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "biuf"
            and value.dtype.itemsize <= 8)


def _tensor_of(array: Any) -> torch.Tensor:
    """A tensor in the array's own memory, unless that is read-only, or has negative strides or the other byte order:
    then in a copy."""
    if not array.flags.writeable or min(array.strides, default=1) < 0 or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array)


def _is_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biufSU"


def parameter_names(*objects: Any) -> dict[torch.Tensor, str]:
    """The names of the parameters of modules."""
    return {
        parameter: plain_name(name)
        for each in objects
        if isinstance(each, Module)
        for name, parameter in bare(each).named_parameters()
    }


inputs_seen: weakref.WeakKeyDictionary[Module, list[int]] = weakref.WeakKeyDictionary()
"""Of the last forward of modules that `watch_grads` observes."""


def observe_inputs(module: Module) -> torch.utils.hooks.RemovableHandle:
    """Observes the batches that a rank reads, which gradients that are reduced before backward ends do not show."""
    def before_forward(module: Module, args: Any, kwargs: Any) -> None:
        tensors = [each for each in torch.utils._pytree.tree_leaves((args, kwargs))
                   if isinstance(each, torch.Tensor) and not _sharding.is_dtensor(each) and each.layout == torch.strided
                   and not each.is_meta]
        inputs_seen[module] = _library.call("hash", tensors)["hash"]

    return module.register_forward_pre_hook(before_forward, with_kwargs=True)


def _parameters_in(optimizer: Optimizer, model: Module) -> int:
    """How many parameters of the model the optimizer steps."""
    own = {id(each) for each in model.parameters()}
    return sum(id(each) in own for group in optimizer.param_groups for each in group["params"])


def steps_others(optimizer: Optimizer, model: Module) -> bool:
    """Whether none of the model's parameters is among those of the optimizer."""
    return _parameters_in(optimizer, model) == 0 and any(True for _ in model.parameters())


def describe(value: Any, name: str, model: Module | None = None) -> Description:
    """`value` as a subject to verify. `model` gives names to the parameters of an optimizer."""
    if isinstance(value, str) and value == "rng":
        description = Description(name, "rng")
        description.json["rng"] = True
        return description
    if isinstance(value, Module):
        description = Description(name, "module")
        description.add_module(value)
        description.json["stepped"] = [
            each["tensor"] for each in description.json["items"] if each["kind"] == "parameter" and "tensor" in each
        ]
    elif isinstance(value, Optimizer):
        description = Description(name, "optimizer")
        description.add_optimizer(value, parameter_names(model))
        if model is not None:
            description.add_value("parameters of the model", "hyperparameter", _parameters_in(value, model))
    elif isinstance(value, torch.Tensor):
        description = Description(name, "tensor")
        description.add_tensor(name, "tensor", value)
        for each in description.json["items"]:
            if each["kind"] == "tensor":
                each["name"] = ""
    elif isinstance(value, torch.Generator):
        description = Description(name, "rng")
        description.add_any("", "rng", value)
    elif isinstance(value, (Mapping, list, tuple)):
        description = Description(name, "container")
        try:
            description.add_any("", "tensor", value)
        except RecursionError:
            raise ArgumentError("verify: the container is nested too deeply, or contains itself") from None
        for each in description.json["items"]:
            if "value" in each and each["kind"] == "tensor":
                each["kind"] = "value"
    elif value is None or isinstance(value, (bool, int, float, bytes)) or _is_array(value) or _is_scalar(value):
        description = Description(name, "value")
        description.add_any("", "tensor" if _is_array(value) else "value", value)
    elif isinstance(value, str):
        raise ArgumentError(
            f"verify: there is nothing called {value!r}. The only text that verify takes is 'rng', the random number "
            "generators; to compare a text, put it into a list"
        )
    else:
        raise ArgumentError(
            f"verify: can't look into a {type(value).__name__}. It takes a module, an optimizer, a tensor, 'rng', a "
            "generator, and containers of tensors and values; of other objects pass their state_dict()"
        )
    return description


def gradients(value: Any, name: str, tensors: Tensors) -> dict[str, Any]:
    """The parameters whose gradients are looked at (python/operators/subjects.h)."""
    wrapper = None
    kind = "container"
    named: list[tuple[str, torch.Tensor]]
    if isinstance(value, Module):
        kind = "module"
        ignored: set[str] = set(getattr(value, "parameters_to_ignore", ()))
        named = [
            (plain_name(key), each) for key, each in bare(value).named_parameters() if key not in ignored
        ]
        if (ddp := wrapper_of(value)) is not None:
            wrapper = {
                "skips_unused": bool(ddp.find_unused_parameters or ddp.static_graph),
                "last_forward_was_local": not ddp.require_forward_param_sync,
            }
    elif isinstance(value, Optimizer):
        kind = "optimizer"
        named = list(_optimizer_parameters(value))
    elif isinstance(value, torch.Tensor):
        kind = "tensor"
        named = [("", value)]
    elif isinstance(value, Mapping):
        named = [(str(key), each) for key, each in value.items()]
    else:
        try:
            named = [(str(index), each) for index, each in enumerate(value)]
        except TypeError:
            raise ArgumentError(
                f"grads: can't find parameters in a {type(value).__name__}. It takes a module, an optimizer, a tensor, "
                "or a container of tensors"
            ) from None
    for _, each in named:
        if not isinstance(each, torch.Tensor):
            raise ArgumentError(f"grads: {type(each).__name__} is no parameter. It takes a module, an optimizer, a "
                                "tensor, or a container of tensors")
    return {
        "name": name,
        "type": kind,
        "parameters": [{"name": key, "tensor": tensors.add(each)} for key, each in named],
        "wrapper": wrapper,
    }


def _optimizer_parameters(optimizer: Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    groups = optimizer.param_groups
    for number, group in enumerate(groups):
        prefix = "" if len(groups) == 1 else str(number)
        own = group.get("param_names") or []
        for index, parameter in enumerate(group["params"]):
            yield joined(prefix, own[index] if index < len(own) else str(index)), parameter


def names(tensors: Tensors, *objects: Any) -> list[dict[str, Any]]:
    """The names of parameters and buffers, for findings about operators (python/operators/subjects.h)."""
    result = []
    for each in objects:
        if not isinstance(each, Module):
            continue
        inner = bare(each)
        for kind, named in (("parameter", inner.named_parameters()), ("buffer", inner.named_buffers())):
            for name, tensor in named:
                local = _sharding.local_of(tensor)
                if local is not None:
                    result.append(
                        {"object": "", "name": plain_name(name), "kind": kind, "tensor": tensors.add(local)}
                    )
    return result
