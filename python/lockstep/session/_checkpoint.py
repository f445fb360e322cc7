"""Writes what the names of the cells hold into files, one for each rank, and reads them back into the same names:
`%checkpoint` and `%restore`, as ddp/checkpoint.h does for C++. Files are read with weights_only, so no code of theirs runs."""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import pickle
import secrets
import sys
import weakref
import zipfile
from typing import Any, Callable, Iterable, Iterator

import torch
import torch.distributed as dist

from lockstep.core.errors import LockstepError
from lockstep.prompt import _magics
from lockstep.session import _generators, _kinds, _plain, _sharing, _state, _wrappers
from lockstep.session._plain import Unfit
from lockstep.session._taking import Taking
from lockstep.subject._describe import wrapper_of

_FORM, _VERSION = "checkpoint of Python ranks", 2
_GENERATORS = "generators"
_written: dict[int, dict[str, Callable[[], Any]]] = {}
"""The objects with a state that names had in checkpoints of this process, by the id of the checkpoint: weak references."""


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
    """Writes the files. Where a rank can't write its own, none is replaced. Collective over all ranks. Raises
    LockstepError."""
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
            size = _save_what_can_be(content, made, left)
        except OSError as error:
            problem = f"{error.filename or made}: {error.strerror}"
        except Exception as error:
            problem = f"it can't be written: {_state.text_of(error)}"
        _raise_problems("the checkpoint could not be written, and files that were there are unchanged:", problem)
        try:
            os.replace(made, path)
        except OSError as error:
            problem = f"{path}: {error.strerror}"
        _raise_problems("the checkpoint is not complete; files of other ranks may have been replaced:", problem)
    finally:
        if os.path.isfile(made):
            os.unlink(made)
    _written[content["id"]] = _references(content["names"])
    ranks = dist.get_world_size()
    bytes_written = sum(_state.gather(size))
    done = f"written to {folder}: {ranks} file{'' if ranks == 1 else 's'}, {_size_text(bytes_written)}"
    return _Report(done, [*_of_ranks(content["names"]), _GENERATORS], _reasons(left))


def read(folder: str) -> _Report:
    """Reads the files, which have to be of one checkpoint of as many ranks: where one is missing or damaged, nothing is
    changed. An object that does not fit keeps its value. Collective over all ranks. Raises LockstepError."""
    folder = os.path.abspath(os.path.expanduser(folder))
    what = f"nothing was restored from {folder}"
    made: Taking | None = None
    taking: Taking | None = None  # from when on names change
    try:
        with _without_collector():
            content, saved, problem = _load(f"{folder}/rank{dist.get_rank()}.pt")
        _raise_problems(f"{what}:", problem)
        if len(set(_state.gather(content["id"]))) > 1:
            raise LockstepError(f"{what}: its files are of different checkpoints: one was interrupted while it replaced another")
        try:
            with _without_collector():
                made = Taking(saved, _names(), {name: each() for name, each in _written.get(content["id"], {}).items()})
        except Exception as error:  # of a class of the user's
            problem = f"the names of the cells can't be read: {_state.text_of(error)}"
        _raise_problems(f"{what}:", problem)
        assert made is not None
        taking = made
        with torch.no_grad():
            taking.run()
        _lay_out(taking.layouts, taking.left)
        if why := _take_generators(content[_GENERATORS]):
            taking.left[_GENERATORS] = why
        names = _of_ranks(taking.restored) + _of_ranks([] if why else [_GENERATORS])
        return _Report(f"restored from {folder}", names, _reasons(taking.left))
    except BaseException as error:  # an interrupt, too
        if taking is not None or not isinstance(error, LockstepError):
            print(f"%restore did not end: {what if taking is None else taking.so_far()}. Repeat %restore", file=sys.stderr)
        raise


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Objects that become many and stay are not gone through again and again for cycles of which none is left."""
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()


# ---- Files -----------------------------------------------------------------------------------------------------------


class _Output:
    """Writes to a descriptor, and keeps the error that ends this: torch must not see an exception there."""

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
    """Writes a file. Returns its size in bytes. Raises OSError and what torch raises."""
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


def _save_what_can_be(content: dict[str, Any], path: str, left: dict[str, str]) -> int:
    """Writes a file as _save() does. Names that torch can't write are left out."""
    try:
        return _save(content, path)
    except OSError:
        raise
    except Exception:
        names = content["names"]
        failures = {name: why for name, each in names.items() if (why := _failure_of(each))}
        if not failures:
            raise
    left.update(failures)
    content["names"] = {name: each for name, each in names.items() if name not in failures}
    return _save(content, path)


def _failure_of(described: Any) -> str:
    try:
        with open(os.devnull, "wb") as nothing:
            torch.save(described, nothing)
    except Exception as error:
        return f"it can't be written: {_state.text_of(error)}"
    return ""


def _load(path: str) -> tuple[dict[str, Any], dict[str, _kinds.Saved], str]:
    """Returns what the file has, also of each name, or why it can't be read."""
    content, problem = _content_of(path)
    saved: dict[str, _kinds.Saved] = {}
    damaged = f"{path} is no checkpoint of Python ranks, or is damaged: "
    for name, described in {} if problem else content["names"].items():
        if not _state.is_name(name):
            return {}, {}, f"{damaged}it has a value for {name!r:.50}, which is no name"
        try:
            saved[name] = _kinds.Saved(described)
        except Exception as error:
            return {}, {}, f"{damaged}what it has of {name} can't be read: {_state.text_of(error)}"
    try:
        content[_GENERATORS] = {device: _plain.decode(each) for device, each in content.get(_GENERATORS, {}).items()}
    except Exception as error:
        problem = f"{damaged}what it has of generators can't be read: {_state.text_of(error)}"
    return content, saved, problem


def _content_of(path: str) -> tuple[dict[str, Any], str]:
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
        return {}, no_checkpoint + _state.text_of(error)
    if not isinstance(content, dict) or content.get("form") != _FORM:
        return {}, no_checkpoint + "it was not written by %checkpoint"
    if (version := content.get("version")) != _VERSION:
        return {}, f"{path} is of another version of Lockstep (its form is {version}, and {_VERSION} is read)"
    names = content.get("names")
    generators = content.get(_GENERATORS)
    if not (isinstance(names, dict) and isinstance(generators, dict) and {*generators} == {"torch", "cuda", "random", "numpy"}
            and isinstance(content.get("id"), int) and isinstance(content.get("ranks"), int)):
        return {}, no_checkpoint + "it has not all parts"
    if (ranks := content["ranks"]) != dist.get_world_size():
        return {}, f"it is of {ranks} rank{'' if ranks == 1 else 's'}, and the session has {dist.get_world_size()}"
    return content, ""


def _read(path: str) -> Any:
    """Reads a file without the classes that a cell has declared safe: a checkpoint has none, and a file of others may
    use them."""
    declared = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=False)
    finally:
        torch.serialization.add_safe_globals(declared)


# ---- Names -----------------------------------------------------------------------------------------------------------


def _names() -> dict[str, Any]:
    """The names that cells have defined, except code, which cells make again, and parameters, which modules hold."""
    main = sys.modules["__main__"].__dict__
    parameters = _state.parameters(main)
    return {name: value for name, value in _state.values(main) if name not in _magics.initial
            and not isinstance(value, type) and not inspect.ismodule(value) and not inspect.isroutine(value)
            and id(value) not in parameters}


def _references(described: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    for name, each in described.items():
        if each["kind"] != _kinds.VALUE.name:
            with contextlib.suppress(TypeError):  # of a class of the user's with __slots__
                found[name] = weakref.ref(sys.modules["__main__"].__dict__[name])
    return found


def _describe(left: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns what the file has of the names, and of the generators."""
    encoder = _plain.Encoder()
    described = {}
    names = _names()
    parts = _sharing.parts_of(names)
    shares = _sharing.shares(names, _sharing.neighbours(parts, _sharing.groups_of(parts)))
    left.update({_text_of_key(key): "it is no name" for key in sys.modules["__main__"].__dict__ if not _state.is_name(key)})
    for name, value in names.items():
        try:
            described[name] = {**_kinds.kind_of(value).describe(value, encoder), "shares": shares[name]}
        except Unfit as error:
            left[name] = str(error)
        except Exception as error:  # of a class of the user's
            left[name] = f"its state can't be read: {_state.text_of(error)}"
    generators = {device: encoder.encode(state) for device, state in _state.read_generators(of_all_devices=True).items()}
    return described, generators


def _text_of_key(key: Any) -> str:
    return repr(key) if type(key) in (str, int, float, bool, bytes, type(None)) else f"a {_plain.type_name(key)}"


def _take_generators(decoded: dict[str, Any]) -> str:
    """Sets the generators. Returns why one of them can't be set."""
    why = ""
    now = _state.read_generators(of_all_devices=True)
    try:
        for device, words in (("cuda", "no cuda is in use here"), ("numpy", "NumPy is not imported here")):
            if decoded[device] is not None and now[device] is None:
                decoded[device], why = None, words
        if decoded["cuda"] is not None and len(decoded["cuda"]) != len(now["cuda"]):
            decoded["cuda"], why = None, f"they were of {len(decoded['cuda'])} GPUs, and {len(now['cuda'])} are here"
        for device, state in decoded.items():
            if state is not None and not _generators.fits(state, now[device]):
                return f"the state of the generator of {device} is damaged, or of another version"
        _state.write_generators(decoded)
    except Exception as error:
        _state.write_generators(now)
        return f"they can't be read: {_state.text_of(error)}"
    return why


# ---- Wrappers --------------------------------------------------------------------------------------------------------


def _lay_out(layouts: dict[str, list[list[int]]], left: dict[str, str]) -> None:
    """Gives wrappers that all ranks have restored the layout of the checkpoint. Collective."""
    main = sys.modules["__main__"].__dict__
    mine: dict[str, tuple[bool, list[list[int]]]] = {}  # whether the present layout is another one
    wrappers = {name: wrapper for name in layouts if (wrapper := wrapper_of(main[name])) is not None}
    for name, wrapper in wrappers.items():
        with contextlib.suppress(torch.OutOfMemoryError):  # then no rank lays it out
            mine[name] = _wrappers.layout_of(wrapper) != layouts[name], layouts[name]
    everything = _state.gather(mine)
    for name in mine:
        if not all(name in each and each[name][1] == layouts[name] for each in everything):
            left[name] = "the layout of its buckets was not that of all ranks, or can't be read here"
        elif any(each[name][0] for each in everything):
            try:
                if _wrappers.layout_of(wrappers[name]) != layouts[name]:  # not yet laid out under another name
                    _wrappers.lay_out(wrappers[name], layouts[name])
                _wrappers.begin_again(wrappers[name])
            except Exception as error:  # of a hook of the user's, or of a file that is damaged
                left[name] = f"its buckets can't be laid out: {_state.text_of(error)}"


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
