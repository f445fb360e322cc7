#!/usr/bin/env python3
"""check_symbols.py PLUGIN NCCL_SYMBOLS_H LIBTORCH_LIB CUDART: the undefined symbols of the plug-in that none of the
libraries it is linked with exports are those that nccl_symbols.h lists, and libtorch_cuda.so exports them where it is
there."""
import pathlib
import re
import subprocess
import sys


def symbols(library, *options):
    """Returns the names of `nm -D`, without their versions. Weak ones that are undefined may stay so."""
    lines = subprocess.run(["nm", "-D", *options, str(library)], check=True, capture_output=True, text=True).stdout
    fields = [line.split() for line in lines.splitlines()]
    return {each[-1].split("@")[0] for each in fields if len(each) > 1 and each[-2] not in ("w", "v")}


def main():
    plugin, header, libtorch, cudart = (pathlib.Path(argument) for argument in sys.argv[1:5])
    pieces = re.sub(r'"\s*"', "", header.read_text())  # one string in several lines
    listed = set(re.findall(r'"(_Z\w+)"', pieces))
    undefined = symbols(plugin, "--undefined-only")
    linked = [*(libtorch / f"lib{name}.so" for name in ("c10", "torch_cpu", "c10_cuda")), cudart]
    resolved = subprocess.run(["ldd", str(plugin)], check=True, capture_output=True, text=True).stdout
    linked += [pathlib.Path(path) for path in re.findall(r"=> (/\S+)", resolved) if "torch" not in pathlib.Path(path).name]
    linked += [pathlib.Path(path) for path in re.findall(r"^\s*(/\S+)", resolved, re.M)]
    exported = set().union(*(symbols(library, "--defined-only") for library in linked if library.exists()))
    found = undefined - exported
    problems = []
    if new := sorted(found - listed):
        problems.append("is not in nccl_symbols.h, nor in a library that the plug-in is linked with: " + ", ".join(new))
    if old := sorted(listed - found):
        problems.append("is in nccl_symbols.h, and the plug-in does not need it: " + ", ".join(old))
    cuda = libtorch / "libtorch_cuda.so"
    if cuda.exists() and (missing := sorted(found - symbols(cuda, "--defined-only"))):
        problems.append(f"is not exported by {cuda}: " + ", ".join(missing))
    for problem in problems:
        print(f"{plugin.name}: {problem}", file=sys.stderr)
    return 1 if problems else 0


sys.exit(main())
