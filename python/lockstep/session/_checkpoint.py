"""Writes what the names of the cells hold into files, one a rank, and reads them back into the same names: `%checkpoint`
and `%restore`. As ddp/checkpoint.h for cells in C++. A file is read with weights_only, so that it runs no code."""

from __future__ import annotations

import collections
import inspect
import os
import pickle
import random
import secrets
import sys
import zipfile
from typing import Any, Callable, Iterable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lockstep.core.errors import LockstepError
from lockstep.prompt import _magics
from lockstep.session import _plain, _state, _wrappers
from lockstep.session._plain import Unfit

_FORM, _VERSION = "checkpoint of Python ranks", 1
_GENERATORS = "generators"


class _Report:
    """What was written or read, and what was left out. The same on all ranks."""

    def __init__(self, done: str, names: list[str], left_out: list[str]) -> None:
        self.done = done
        self.names = names
        self.left_out = left_out

    def __repr__(self) -> str:
        names = [f"  {', '.join(self.names)}"] if self.names else []
        return "\n".join([self.done, *names, *(f"  left out: {each}" for each in self.left_out)])


def write(folder: str) -> _Report:
    """Collective over all ranks. Where a rank can't write its file, none is replaced. Raises LockstepError."""
    folder = os.path.abspath(os.path.expanduser(folder))
    path = f"{folder}/rank{dist.get_rank()}.pt"
    made = path + ".new"
    content: dict[str, Any] = {"form": _FORM, "version": _VERSION, "ranks": dist.get_world_size(),
                               "id": _state.gather(secrets.randbits(32))[0]}
    left: dict[str, str] = {}
    size = 0
    try:
        problem = ""
        try:
            content["names"], content[_GENERATORS] = _describe(left)
            os.makedirs(folder, exist_ok=True)
            size = _save(content, made)
        except OSError as error:
            problem = f"{error.filename or made}: {error.strerror}"
        except Exception as error:
            problem = f"it can't be written: {_text_of(error)}"
        _raise_problems("the checkpoint could not be written, and files that were there are unchanged:", problem)
        try:
            os.replace(made, path)
        except OSError as error:
            problem = f"{path}: {error.strerror}"
        _raise_problems("the checkpoint is not complete; files of other ranks may have been replaced:", problem)
    finally:
        if os.path.isfile(made):
            os.unlink(made)
    ranks = dist.get_world_size()
    bytes_written = sum(_state.gather(size))
    done = f"written to {folder}: {ranks} file{'' if ranks == 1 else 's'}, {_size_text(bytes_written)}"
    return _Report(done, [*_of_ranks(content["names"]), _GENERATORS], _reasons(left))


def read(folder: str) -> _Report:
    """Collective over all ranks. Files have to be of one checkpoint of as many ranks: where one is missing or damaged,
    nothing is changed. What does not fit keeps what it has. Raises LockstepError."""
    folder = os.path.abspath(os.path.expanduser(folder))
    path = f"{folder}/rank{dist.get_rank()}.pt"
    content, problem = _load(path)
    what = f"nothing was restored from {folder}:"
    _raise_problems(what, problem)
    if len(set(_state.gather(content["id"]))) > 1:
        raise LockstepError(f"{what} its files are of different checkpoints: one was interrupted while it replaced another")
    left: dict[str, str] = {}
    layouts: dict[str, list[list[int]]] = {}
    restored = _take(content["names"], left, layouts)
    _lay_out(layouts)
    if why := _take_generators(content[_GENERATORS]):
        left[_GENERATORS] = why
    names = _of_ranks(restored) + _of_ranks([] if why else [_GENERATORS])
    return _Report(f"restored from {folder}", names, _reasons(left))


# ---- Files -----------------------------------------------------------------------------------------------------------


class _Output:
    """Keeps what keeps it from writing: torch must not see an exception there."""

    def __init__(self, descriptor: int) -> None:
        self.failure: BaseException | None = None
        self.size = 0
        self._descriptor = descriptor

    def write(self, content: Any) -> int:
        data = memoryview(content).cast("B")
        size = len(data)
        self.size += size
        try:
            while data and self.failure is None:
                data = data[os.write(self._descriptor, data):]
        except BaseException as failure:  # an interrupt, too
            self.failure = failure
        return size

    def flush(self) -> None:
        pass


def _save(content: dict[str, Any], path: str) -> int:
    """Returns how many bytes the file has. Raises OSError and what torch raises."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    checks = torch.serialization.get_crc32_options()
    try:
        output = _Output(descriptor)
        torch.serialization.set_crc32_options(True)
        torch.save(content, output)  # type: ignore[arg-type]
        if output.failure is not None:
            raise output.failure
        os.fsync(descriptor)
    finally:
        torch.serialization.set_crc32_options(checks)
        os.close(descriptor)
    return output.size


def _load(path: str) -> tuple[dict[str, Any], str]:
    """Returns what the file has, or why it can't be read."""
    if not os.path.exists(path):
        return {}, f"there is no {path}"
    no_checkpoint = f"{path} is no checkpoint of Python ranks, or is damaged: "
    try:
        with zipfile.ZipFile(path) as archive:
            if (damaged := archive.testzip()) is not None:
                return {}, f"{no_checkpoint}the bytes of {damaged} are not those that were written"
        content = _read(path)
    except pickle.UnpicklingError:
        return {}, f"{no_checkpoint}it has objects that are not read from files"
    except Exception as error:
        return {}, no_checkpoint + _text_of(error)
    if not isinstance(content, dict) or content.get("form") != _FORM:
        return {}, no_checkpoint + "it was not written by %checkpoint"
    if (version := content.get("version")) != _VERSION:
        return {}, f"{path} is of another version of Lockstep (its form is {version}, and {_VERSION} is read)"
    names = content.get("names")
    if not (isinstance(names, dict) and all(isinstance(key, str) and isinstance(each, dict) for key, each in names.items())
            and isinstance(content.get(_GENERATORS), dict) and isinstance(content.get("id"), int)
            and isinstance(content.get("ranks"), int)):
        return {}, no_checkpoint + "it has not all parts"
    if (ranks := content["ranks"]) != dist.get_world_size():
        return {}, f"it is of {ranks} rank{'' if ranks == 1 else 's'}, and the session has {dist.get_world_size()}"
    return content, ""


def _read(path: str) -> Any:
    """Without the classes that a cell has declared safe: a checkpoint has none, and a file of others may use them."""
    declared = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=False)
    finally:
        torch.serialization.add_safe_globals(declared)


# ---- Names -----------------------------------------------------------------------------------------------------------


def _names() -> dict[str, Any]:
    """What cells have defined, but code, which cells make again, and parameters, which are those of their modules."""
    main = sys.modules["__main__"].__dict__
    parameters = _state.parameters(main)
    return {name: value for name, value in _state.values(main) if name not in _magics.initial
            and not isinstance(value, type) and not inspect.ismodule(value) and not inspect.isroutine(value)
            and id(value) not in parameters}


def _describe(left: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns what the file has of the names, and of the generators."""
    encoder = _plain.Encoder()
    described = {}
    for name, value in _names().items():
        try:
            described[name] = _kind_of(value).describe(value, encoder)
        except Unfit as error:
            left[name] = str(error)
        except Exception as error:  # of a class of the user's
            left[name] = f"its state can't be read: {_text_of(error)}"
    generators = {device: encoder.encode(state) for device, state in _state.read_generators(of_all_devices=True).items()}
    return described, generators


def _take(described: dict[str, Any], left: dict[str, str], layouts: dict[str, list[list[int]]]) -> list[str]:
    """Returns the names that have what was written."""
    here = _names()
    main = sys.modules["__main__"].__dict__
    restored = []
    left.update({name: "it is not in the checkpoint" for name in here.keys() - described.keys()})
    for name, saved in sorted(described.items(), key=lambda item: _ORDER.get(item[1].get("kind"), 0)):
        try:
            if name not in here and (name in main or name in _magics.initial or name.startswith("__")):
                raise Unfit(f"its type was {saved['type']}, and it is code")
            if name not in here and saved["kind"] != _VALUE.name:
                raise Unfit("no variable has the name")
            mine = here.get(name)
            kind = _kind_of(mine)
            if saved["kind"] != kind.name or (kind is not _VALUE and saved["type"] != _plain.type_name(mine)):
                raise Unfit(f"its type was {saved['type']}, and is {_plain.type_name(mine)}")
            layout = _checked_layout(mine, saved["layout"]) if "layout" in saved else None
            with torch.no_grad():
                now = kind.take(mine, saved)
            if now is not mine or name not in here:
                main[name] = now
            if layout is not None:
                layouts[name] = layout
            restored.append(name)
        except Unfit as error:
            left[name] = str(error)
        except Exception as error:  # of a class of the user's, or of a value that is damaged
            left[name] = f"it can't be read: {_text_of(error)}"
    return sorted(restored)


class _Kind:
    """How objects of a kind are written and read. `take` returns what the name holds then. Both raise Unfit."""

    def __init__(self, name: str, describe: Callable[[Any, _plain.Encoder], dict[str, Any]],
                 take: Callable[[Any, dict[str, Any]], Any]) -> None:
        self.name = name
        self._describe = describe
        self.take = take

    def describe(self, value: Any, encoder: _plain.Encoder) -> dict[str, Any]:
        return {"kind": self.name, "type": _plain.type_name(value), **self._describe(value, encoder)}


def _kind_of(value: Any) -> _Kind:
    """Raises Unfit."""
    if isinstance(value, torch.nn.Module):
        return _MODULE
    if isinstance(value, torch.optim.Optimizer):
        return _OPTIMIZER
    if _plain.is_value(value):
        return _VALUE
    if _accessors_of(value):
        return _GENERATOR
    if _state.has_state_dict(value):
        return _STATE
    raise Unfit(f"its type, {_plain.type_name(value)}, can't be written")


def _describe_module(module: torch.nn.Module, encoder: _plain.Encoder) -> dict[str, Any]:
    described: dict[str, Any] = {
        "state": {key: encoder.encode(each, depth=1) for key, each in module.state_dict().items()},
        "training": {key: each.training for key, each in module.named_modules()}}
    if isinstance(module, DistributedDataParallel) and (layout := _layout_of(module)) is not None:
        described["layout"] = layout
    return described


def _take_module(module: torch.nn.Module, saved: dict[str, Any]) -> torch.nn.Module:
    state = {key: _plain.decode(each) for key, each in saved["state"].items()}
    mine = module.state_dict()
    for key, each in mine.items():
        if key not in state or (isinstance(each, torch.Tensor) and _state.form_of(each) != _state.form_of(state[key])):
            raise Unfit(f"{key} was not there, or had another shape or type")
    if len(state) != len(mine):
        raise Unfit("it had more parameters or buffers")
    ordered = collections.OrderedDict(state)
    if hasattr(mine, "_metadata"):  # versions of its modules' state
        ordered._metadata = mine._metadata  # type: ignore[attr-defined]
    module.load_state_dict(ordered)
    for key, each in module.named_modules():
        if each.training != saved["training"].get(key, each.training):
            each.training = not each.training
    return module


def _forms_of(optimizer: torch.optim.Optimizer) -> list[list[list[str]]]:
    """The shapes and types of what it steps: a state of others can be loaded, and fails in a later step."""
    return [[_state.form_of(each) for each in group["params"]] for group in optimizer.param_groups]


def _describe_optimizer(optimizer: torch.optim.Optimizer, encoder: _plain.Encoder) -> dict[str, Any]:
    return {"groups": _forms_of(optimizer), "state": encoder.encode(optimizer.state_dict(), depth=1)}


def _take_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> torch.optim.Optimizer:
    if saved["groups"] != _forms_of(optimizer):
        raise Unfit("it stepped parameters of other shapes or types")
    before = optimizer.state_dict()
    state = _plain.decode(saved["state"])
    try:
        optimizer.load_state_dict(state)
    except Exception:
        optimizer.load_state_dict(before)
        raise
    _keep_types(optimizer, state)
    return optimizer


def _keep_types(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """torch gives the state the type of its parameter, also where the optimizer had made it of another one."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for index, saved in state.get("state", {}).items():
        if not (isinstance(index, int) and 0 <= index < len(parameters) and isinstance(saved, dict)):
            continue
        mine = optimizer.state.get(parameters[index], {})
        for key, each in saved.items():
            now = mine.get(key)
            if isinstance(each, torch.Tensor) and isinstance(now, torch.Tensor) and now.dtype != each.dtype:
                mine[key] = each.to(now.device)


def _describe_value(value: Any, encoder: _plain.Encoder) -> dict[str, Any]:
    return {"value": encoder.encode(value),
            "requires_grad": isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf}


def _take_value(mine: Any, saved: dict[str, Any]) -> Any:
    value = _plain.decode(saved["value"])
    _plain.check_fit(mine, value)
    now = _plain.put(mine, value)
    if now is not mine and isinstance(now, torch.Tensor):
        now.requires_grad_(bool(saved["requires_grad"]))
    return now


def _accessors_of(value: Any) -> tuple[Callable[[], Any], Callable[[Any], object]] | None:
    """Those of the state of a generator."""
    numpy: Any = sys.modules.get("numpy")
    if isinstance(value, torch.Generator):
        return value.get_state, value.set_state
    if isinstance(value, random.Random):
        return value.getstate, value.setstate
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        return value.get_state, value.set_state
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    return None


def _describe_generator(value: Any, encoder: _plain.Encoder) -> dict[str, Any]:
    read, _ = _accessors_of(value) or (None, None)
    assert read is not None
    return {"state": encoder.encode(read(), depth=1)}


def _take_generator(value: Any, saved: dict[str, Any]) -> Any:
    _, write = _accessors_of(value) or (None, None)
    assert write is not None
    write(_plain.decode(saved["state"]))
    return value


def _describe_state(value: Any, encoder: _plain.Encoder) -> dict[str, Any]:
    return {"state": encoder.encode(value.state_dict(), depth=1)}


def _take_state(value: Any, saved: dict[str, Any]) -> Any:
    value.load_state_dict(_plain.decode(saved["state"]))
    return value


_MODULE = _Kind("module", _describe_module, _take_module)
_OPTIMIZER = _Kind("optimizer", _describe_optimizer, _take_optimizer)
_VALUE = _Kind("value", _describe_value, _take_value)
_STATE = _Kind("state", _describe_state, _take_state)
_GENERATOR = _Kind("generator", _describe_generator, _take_generator)
_ORDER = {each.name: i for i, each in enumerate((_VALUE, _MODULE, _OPTIMIZER, _STATE, _GENERATOR))}


def _take_generators(saved: dict[str, Any]) -> str:
    """Returns what keeps one of them from being read."""
    why = ""
    now = _state.read_generators(of_all_devices=True)
    try:
        decoded = {device: _plain.decode(each) for device, each in saved.items()}
        for device, words in (("cuda", "no cuda is in use here"), ("numpy", "NumPy is not imported here")):
            if decoded[device] is not None and now[device] is None:
                decoded[device], why = None, words
        if decoded["cuda"] is not None and len(decoded["cuda"]) != len(now["cuda"]):
            decoded["cuda"], why = None, f"they were of {len(decoded['cuda'])} GPUs, and {len(now['cuda'])} are here"
        _state.write_generators(decoded)
    except Exception as error:
        _state.write_generators(now)
        return f"they can't be read: {_text_of(error)}"
    return why


# ---- Wrappers --------------------------------------------------------------------------------------------------------


def _layout_of(wrapper: Any) -> list[list[int]] | None:
    """None where there is no memory to ask: torch makes buckets for the answer."""
    try:
        return _wrappers.layout_of(wrapper)
    except torch.OutOfMemoryError:
        return None


def _checked_layout(wrapper: Any, layout: list[list[int]]) -> list[list[int]]:
    count = len(wrapper._build_params_for_reducer()[0])
    if sorted(each for bucket in layout for each in bucket) != list(range(count)):
        raise Unfit("it reduced other gradients")
    return layout


def _lay_out(layouts: dict[str, list[list[int]]]) -> None:
    """Collective: gives wrappers that all ranks have restored the layout of the checkpoint."""
    main = sys.modules["__main__"].__dict__
    mine = {name: layout for name in layouts if (layout := _layout_of(main[name])) is not None}
    differ = _state.gather({name: layout != layouts[name] for name, layout in mine.items()})
    for name in mine:
        if all(name in each for each in differ) and any(each[name] for each in differ):
            if _wrappers.layout_of(main[name]) != layouts[name]:  # not laid out by another name of it
                _wrappers.lay_out(main[name], layouts[name])
            _wrappers.begin_again(main[name])


# ---- What ranks have met ---------------------------------------------------------------------------------------------


def _raise_problems(what: str, mine: str) -> None:
    """Raises what ranks have met, by rank. The same on all ranks."""
    problems: dict[str, list[int]] = {}
    for rank, problem in enumerate(_state.gather(mine)):
        if problem:
            problems.setdefault(problem, []).append(rank)
    if problems:
        raise LockstepError("\n".join([what, *(f"{_state.words(ranks)}: {problem}" for problem, ranks in problems.items())]))


def _of_ranks(mine: Iterable[str]) -> list[str]:
    """The names that ranks have, with the ranks where not all have one. The same on all ranks."""
    everything = _state.gather(sorted(mine))
    by_name = {name: [rank for rank, names in enumerate(everything) if name in names]
               for name in sorted({name for names in everything for name in names})}
    return [name if len(ranks) == len(everything) else f"{name} on {_state.words(ranks)}" for name, ranks in by_name.items()]


def _reasons(mine: dict[str, str]) -> list[str]:
    """Why names were left out, in the same way."""
    everything = _state.gather(mine)
    found: dict[tuple[str, str], list[int]] = {}
    for rank, reasons in enumerate(everything):
        for reason in reasons.items():
            found.setdefault(reason, []).append(rank)
    return [f"{name}: {why}" if len(ranks) == len(everything) else f"{name} on {_state.words(ranks)}: {why}"
            for (name, why), ranks in sorted(found.items())]


def _size_text(count: int) -> str:
    return f"{(count + 999) // 1000} KB" if count < 1_000_000 else f"{count / 1e6:.1f} MB"


def _text_of(error: BaseException) -> str:
    """Its first line: torch adds its own stack."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
