"""The version of the wheel: that of the tree, and the minor version of torch that the libraries are for."""

import os
import pathlib
import re

__all__ = ["dynamic_metadata"]


def build_folder():
    here = pathlib.Path(__file__).resolve().parent
    return pathlib.Path(os.environ.get("LOCKSTEP_BUILD") or here.parent / "build" / "release")


def dynamic_metadata(field, settings=None):
    tree = pathlib.Path(__file__).resolve().parent.parent
    version = re.search(r"project\(Lockstep VERSION ([0-9.]+)", (tree / "CMakeLists.txt").read_text()).group(1)
    torch = build_folder() / "lib" / "lockstep" / "libtorch.version"
    if not torch.is_file():
        raise SystemExit(
            f"{build_folder()} is no build folder of Lockstep. Run tools/wheel, which makes one; or configure the tree "
            "(CONTRIBUTING.md), and name its build folder in LOCKSTEP_BUILD"
        )
    return f"{version}+torch{'.'.join(torch.read_text().strip().split('.')[:2])}"
