"""The command `lockstep` of an environment: becomes the program that is in the wheel. Without torch, which takes a second
to import."""

import importlib.util
import os
import pathlib
import sys
from typing import NoReturn

__all__ = ["main"]

_PROGRAM = pathlib.Path("bin", "lockstep")


def _folder_of(package: str) -> pathlib.Path | None:
    found = importlib.util.find_spec(package)
    return pathlib.Path(found.origin).parent if found and found.origin else None


def main() -> NoReturn:
    """Raises SystemExit if there is no program."""
    package = _folder_of("lockstep")
    # An editable installation has its programs in site-packages, and its Python in the tree.
    folders = [each for each in (package, *(pathlib.Path(path) / "lockstep" for path in sys.path)) if each]
    folder = next((each for each in folders if (each / _PROGRAM).is_file()), None)
    if folder is None:
        raise SystemExit(f"lockstep: {package} has no programs: install its wheel again (tools/wheel makes one)")
    # The program looks beside the package for torch. It is elsewhere where an environment has packages of another one.
    torch = _folder_of("torch")
    if torch and torch.parent != folder.parent:
        os.environ.setdefault("LOCKSTEP_LIBTORCH", str(torch))
    # Python and torchrun of this environment are found also where it is not active, after those of the one that is.
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH") or os.defpath, os.path.dirname(sys.executable)])
    try:
        os.execv(folder / _PROGRAM, ["lockstep", *sys.argv[1:]])
    except OSError as error:
        raise SystemExit(f"lockstep: {folder / _PROGRAM} can't be started: {error.strerror}") from None
