"""What the metadata of the wheels takes from the tree and from its build folders: the version, and the torch that the
libraries are for."""

import os
import pathlib
import re

__all__ = ["Cells", "dynamic_metadata"]

_TREE = pathlib.Path(__file__).resolve().parent.parent


def version():
    return re.search(r"project\(Lockstep VERSION ([0-9.]+)", (_TREE / "CMakeLists.txt").read_text()).group(1)


def minors():
    """The minor versions of torch that the build folders in LOCKSTEP_BUILD are for, as numbers."""
    found = []
    for folder in (os.environ.get("LOCKSTEP_BUILD") or str(_TREE / "build" / "release")).split(";"):
        torch = pathlib.Path(folder) / "lib" / "lockstep" / "libtorch.version"
        if not torch.is_file():
            raise SystemExit(f"{folder} is no build folder of Lockstep. Run tools/wheel, which makes one; or configure the "
                             "tree (CONTRIBUTING.md), and name its build folder in LOCKSTEP_BUILD")
        found.append(tuple(int(part) for part in torch.read_text().split(".")[:2]))
    return sorted(found)


def dynamic_metadata(field, settings=None):
    if field == "version":
        return version()
    if field == "dependencies":  # pip leaves a torch alone that fits, and installs one where there is none
        found = minors()
        (major, oldest), (_, newest) = found[0], found[-1]
        gaps = [f",!={major}.{each}.*" for each in range(oldest, newest) if (major, each) not in found]
        return [f"torch>={major}.{oldest},<{major}.{newest + 1}" + "".join(gaps)]
    return {
        "cells": [f"lockstep-cells=={version()}"],  # the compiler of C++ cells
        "look": ["py-spy>=0.4"],  # with which `lockstep look` reads stacks
    }


class Cells:
    """The metadata of the wheel lockstep-cells (python/compiler), which adds to the files of the wheel lockstep."""

    def dynamic_metadata(self, field, settings=None):
        return [f"lockstep=={version()}"]
