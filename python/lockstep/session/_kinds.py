"""The kinds of objects that `%checkpoint` writes and `%restore` reads: values, and objects with a state of their own."""

from __future__ import annotations

import collections
from typing import Any, Callable

import torch

from lockstep.session import _generators, _plain, _sharing, _state, _wrappers
from lockstep.session._plain import Unfit
from lockstep.subject._describe import wrapper_of


class Kind:
    """Writes and reads objects of a kind. `read` makes of what the file has what the two others take, and raises what a
    damaged file makes Python raise. `check` raises Unfit where `take` can't read it into an object."""

    def __init__(self, name: str, describe: Callable[[Any, _plain.Encoder], dict[str, Any]],
                 read: Callable[[Any], dict[str, Any]], check: Callable[[Any, Any], None],
                 take: Callable[[Any, Any], None]) -> None:
        self.name = name
        self.title = "object" if name == "state" else name
        self._describe = describe
        self.read = read
        self.check = check
        self.take = take

    def describe(self, value: Any, encoder: _plain.Encoder) -> dict[str, Any]:
        return {"kind": self.name, "type": _plain.type_name(value), **self._describe(value, encoder)}


class Saved:
    """What a file has of a name."""

    def __init__(self, described: Any) -> None:
        """Raises what a damaged file makes Python raise."""
        self.kind = _BY_NAME[described["kind"]]
        self.type = _of(str, described["type"])
        self.shares: list[str] = [_of(str, each) for each in _of(list, described["shares"])]
        self.content: dict[str, Any] = {}
        self.failure = ""  # why this session can't read it
        try:
            self.content = self.kind.read(described)
        except (Unfit, ImportError) as error:
            self.failure = str(error)


def kind_of(value: Any) -> Kind:
    """Raises Unfit."""
    if isinstance(value, torch.nn.Module):
        return MODULE
    if isinstance(value, torch.optim.Optimizer):
        return _OPTIMIZER
    if _plain.is_value(value):
        return VALUE
    if _generators.accessors_of(value):
        return _GENERATOR
    if _state.has_state_dict(value):
        return _STATE
    raise Unfit(f"its type, {_plain.type_name(value)}, can't be written")


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"a {_plain.type_name(value)} is where a {kind.__name__} is expected")
    return value


def _accepts(_object: Any, _content: Any) -> None:
    """A check that always passes."""


# ---- Modules ---------------------------------------------------------------------------------------------------------


def _describe_module(module: torch.nn.Module, encoder: _plain.Encoder) -> dict[str, Any]:
    described: dict[str, Any] = {
        "state": {key: encoder.encode(each, depth=1) for key, each in module.state_dict().items()},
        "training": {key: each.training for key, each in module.named_modules()}}
    if (wrapper := wrapper_of(module)) is not None and (layout := _layout_of(wrapper)) is not None:
        described["layout"] = layout
    return described


def _layout_of(wrapper: Any) -> list[list[int]] | None:
    """The layout of the wrapper's buckets; None also where memory is short, since torch makes buckets for the answer."""
    try:
        return _wrappers.layout_of(wrapper)
    except torch.OutOfMemoryError:
        return None


def _read_module(described: Any) -> dict[str, Any]:
    layout = described.get("layout")
    for bucket in layout or ():
        for each in _of(list, bucket):
            _of(int, each)
    return {"state": {_of(str, key): _plain.decode(each) for key, each in _of(dict, described["state"]).items()},
            "training": {_of(str, key): _of(bool, each) for key, each in _of(dict, described["training"]).items()},
            "layout": layout if layout is None else _of(list, layout)}


def _check_module(module: torch.nn.Module, content: dict[str, Any]) -> None:
    state, mine = content["state"], module.state_dict()
    for key, each in mine.items():
        if key not in state or (isinstance(each, torch.Tensor) and _state.form_of(each) != _state.form_of(state[key])):
            raise Unfit(f"{key} was not there, or had another shape or type")
    if len(state) != len(mine):
        raise Unfit("it had more parameters or buffers")
    if (layout := content["layout"]) is not None:
        wrapper: Any = wrapper_of(module)
        count = 0 if wrapper is None else len(wrapper._build_params_for_reducer()[0])
        if sorted(each for bucket in layout for each in bucket) != list(range(count)):
            raise Unfit("it reduced other gradients")


def _take_module(module: torch.nn.Module, content: dict[str, Any]) -> None:
    mine, state = module.state_dict(), collections.OrderedDict(content["state"])
    if hasattr(mine, "_metadata"):  # versions of its modules' state
        state._metadata = mine._metadata  # type: ignore[attr-defined]
    module.load_state_dict(state)
    for key, each in module.named_modules():
        if each.training != content["training"].get(key, each.training):
            each.training = not each.training


# ---- Optimizers ------------------------------------------------------------------------------------------------------


def _forms_of(optimizer: torch.optim.Optimizer) -> list[list[list[str]]]:
    """The shapes and types of the parameters that it steps: a state for others can be loaded, but fails in a step."""
    return [[_state.form_of(each) for each in group["params"]] for group in optimizer.param_groups]


def _describe_optimizer(optimizer: torch.optim.Optimizer, encoder: _plain.Encoder) -> dict[str, Any]:
    return {"groups": _forms_of(optimizer), "state": encoder.encode(optimizer.state_dict(), depth=1)}


def _read_optimizer(described: Any) -> dict[str, Any]:
    return {"groups": described["groups"], "state": _of(dict, _plain.decode(described["state"]))}


def _check_optimizer(optimizer: torch.optim.Optimizer, content: dict[str, Any]) -> None:
    if content["groups"] != _forms_of(optimizer):
        raise Unfit("it stepped parameters of other shapes or types")


def _take_optimizer(optimizer: torch.optim.Optimizer, content: dict[str, Any]) -> None:
    before = optimizer.state_dict()
    try:
        optimizer.load_state_dict(content["state"])
    except Exception:
        optimizer.load_state_dict(before)
        raise
    _state.keep_types(optimizer, content["state"])


# ---- Generators, and what else has a state ---------------------------------------------------------------------------


def _read_state(described: Any) -> dict[str, Any]:
    return {"state": _plain.decode(described["state"])}


def _describe_generator(value: Any, encoder: _plain.Encoder) -> dict[str, Any]:
    read, _ = _generators.accessors_of(value) or (None, None)
    assert read is not None
    return {"state": encoder.encode(read(), depth=1)}


def _check_generator(value: Any, content: dict[str, Any]) -> None:
    read, _ = _generators.accessors_of(value) or (None, None)
    if read is None or not _generators.fits(content["state"], read()):
        raise Unfit("it was a generator of another kind, or its state is damaged")


def _take_generator(value: Any, content: dict[str, Any]) -> None:
    _, write = _generators.accessors_of(value) or (None, None)
    assert write is not None
    write(content["state"])


def _describe_state(value: Any, encoder: _plain.Encoder) -> dict[str, Any]:
    return {"state": encoder.encode(value.state_dict(), depth=1)}


def _take_state(value: Any, content: dict[str, Any]) -> None:
    value.load_state_dict(content["state"])


# ---- Values ----------------------------------------------------------------------------------------------------------


def _describe_value(value: Any, encoder: _plain.Encoder) -> dict[str, Any]:
    return {"value": encoder.encode(value), "places": _sharing.places_of(_plain.parts(value, value))}


def _read_value(described: Any) -> dict[str, Any]:
    return {"value": _plain.decode(described["value"]), "places": _of(list, described["places"])}


def _take_value(_value: Any, _content: Any) -> None:
    raise AssertionError("a value is read into its name, together with others")


MODULE = Kind("module", _describe_module, _read_module, _check_module, _take_module)
_OPTIMIZER = Kind("optimizer", _describe_optimizer, _read_optimizer, _check_optimizer, _take_optimizer)
VALUE = Kind("value", _describe_value, _read_value, _accepts, _take_value)
_STATE = Kind("state", _describe_state, _read_state, _accepts, _take_state)
_GENERATOR = Kind("generator", _describe_generator, _read_state, _check_generator, _take_generator)
ORDER = [MODULE, VALUE, _OPTIMIZER, _STATE, _GENERATOR]
_BY_NAME = {each.name: each for each in ORDER}
