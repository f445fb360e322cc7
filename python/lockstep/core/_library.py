"""The library of the operators: which torch it is for, where it is, and how its operators are called."""

from __future__ import annotations

import json
import math
import os
import pathlib
import sys
import threading
from typing import Any, Callable, Sequence

import torch

from lockstep.core import _inductor
from lockstep.core.errors import FOR_NAME, LockstepError, PythonRaised

FOLDER = pathlib.Path(os.path.abspath(__file__)).parent.parent  # of the package
_TORCH_FOLDER = os.path.dirname(os.path.abspath(str(torch.__file__))) + os.sep
_loaded = False
_loading = threading.RLock()
after_loading: list[Callable[[], object]] = []  # functions that load() calls last
_encode = json.JSONEncoder(allow_nan=False).encode  # json.dumps would make an encoder for each call
_constants: dict[str, Any] = {}  # of the library: what the operator `start` returns


def _current_folder() -> str:
    try:
        return os.getcwd().rstrip(os.sep) + os.sep
    except OSError:  # it has been removed
        return os.sep


_WORKING_FOLDER = _current_folder()


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _installed() -> pathlib.Path:
    """The folder of the package that has its libraries: this file's, or that of an editable installation."""
    for entry in [FOLDER, *(pathlib.Path(each) / "lockstep" for each in sys.path)]:
        if (entry / "lib" / "lockstep.version").is_file():
            return entry
    raise ImportError(
        f"lockstep: {FOLDER / 'lib'} has no libraries. This is the package's source; install a wheel (tools/wheel "
        "makes one), or the source with `pip install -e python`"
    )


def shared() -> pathlib.Path:
    """The folder of the files that are the same for every torch."""
    return _installed() / "lib"


def libraries() -> pathlib.Path:
    """The folder of the libraries for the torch of this process. LibTorch's classes are laid out alike in all versions of
    a minor one."""
    return _installed() / f"torch{_minor(str(torch.__version__))}" / "lib"


def version() -> str:
    return (shared() / "lockstep.version").read_text().strip()


def check_torch() -> None:
    """Raises ImportError if there is no library for this minor version of torch."""
    if libraries().is_dir():
        return
    folders = _installed().glob("torch[0-9]*.[0-9]*")
    minors = sorted(tuple(int(part) for part in each.name[len("torch"):].split(".")) for each in folders)
    if not minors:
        raise ImportError(f"lockstep: {_installed()} has no libraries for any torch. Install the wheel again: pip install "
                          "--force-reinstall --no-deps, and its file")
    names = [f"{major}.{minor}" for major, minor in minors]
    here = str(torch.__version__)
    raise ImportError(
        f"lockstep {version()} has libraries for torch {', '.join(names)}, and torch {here} is installed. Install a torch "
        f"that fits (pip install 'torch>={names[0]},<{minors[-1][0]}.{minors[-1][1] + 1}'), or a Lockstep for torch "
        f"{_minor(here)}: a newer wheel, or one of its source (tools/wheel --torch {_minor(here)})"
    )


def skipped_folders() -> list[str]:
    """Folders whose frames are not the user's."""
    return [_TORCH_FOLDER, str(FOLDER) + os.sep]


def torch_folder() -> str:
    return _TORCH_FOLDER.rstrip(os.sep)


def working_folder() -> str:
    """The folder in which the program was started. Paths in it are shown relative to it."""
    return _WORKING_FOLDER


def _plain(value: Any) -> Any:
    """`value` for JSON. NaN and Inf, which JSON lacks, become an object (python/operators/call.cpp). Surrogates, which
    Python has for bytes of a path that are not UTF-8, are written as \\udce9."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def map_library() -> None:
    """Maps the library into the process, and starts nothing: load() does that. Raises OSError."""
    torch.ops.load_library(str(libraries() / "liblockstep_python.so"))  # type: ignore[no-untyped-call]


def load() -> None:
    """Loads the library, once. Raises OSError or ImportError."""
    global _loaded, _constants
    if _loaded:
        return
    with _loading:  # other threads wait until it is usable
        if _loaded:
            return
        map_library()
        _constants = _call("start", (), {"skipped": skipped_folders(), "folder": working_folder()})
        _loaded = True
        _inductor.keep_unloaded()
        for each in after_loading:
            each()


def constant(name: str) -> Any:
    """A constant of the library: "protocol" and "lockstep" are versions, "output_window" is in bytes, "machine" is the
    identity of this machine."""
    load()
    return _constants[name]


def is_loaded() -> bool:
    """Whether a function of this package was called that needed the library."""
    return _loaded


def call(operator: str, tensors: Sequence[torch.Tensor] = (), **arguments: Any) -> dict[str, Any]:
    """Calls torch.ops.lockstep.`operator`. Raises what the operator reports as an error."""
    load()
    return _call(operator, tensors, arguments)


def _call(operator: str, tensors: Sequence[torch.Tensor], arguments: dict[str, Any]) -> dict[str, Any]:
    text = _encode(_plain(arguments)) if arguments else "{}"
    result: dict[str, Any] = json.loads(getattr(torch.ops.lockstep, operator)(list(tensors), text))
    error = result.get("error")
    if error is not None:
        raise FOR_NAME.get(error["type"], LockstepError)(error["message"])
    return result


def give_list(tensors: Sequence[torch.Tensor], indices: list[int]) -> None:
    """Hands tensors to an operator that calls back. It uses those at `indices`."""
    call("give", tensors, indices=indices)


def give_subject(tensors: Sequence[torch.Tensor], subject: dict[str, Any]) -> None:
    """Hands a subject to an operator that calls back."""
    call("give", tensors, **subject)


__all__ = ["PythonRaised", "call", "check_torch", "constant", "give_list", "give_subject", "is_loaded", "libraries",
           "load", "shared", "skipped_folders", "torch_folder", "version", "working_folder"]
