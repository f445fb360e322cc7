#!/usr/bin/env python3
"""Which functions of the C library the two libraries define: liblockstep none, liblockstep_interpose those of docs/dist.md.

replaced_functions.py LIBLOCKSTEP LIBLOCKSTEP_INTERPOSE DOCS/DIST.MD
"""

import re
import subprocess
import sys
from pathlib import Path


def defined(library):
    """The functions that the library gives other libraries."""
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {name.split("@")[0] for _, kind, name in (line.split() for line in lines.splitlines()) if kind in "TWi"}


def c_library(library):
    """The path of the libc.so.6 that the library is loaded with."""
    lines = subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout
    return re.search(r"libc\.so\.6 => (\S+)", lines)[1]


library, interposer, page = sys.argv[1:]
in_libc = defined(c_library(library))
problems = []
if "connect" not in in_libc:
    problems.append("the C library's functions could not be read")
if replaced := sorted((defined(library) & in_libc) - {"_init", "_fini"}):
    problems.append(f"liblockstep replaces functions of the C library in every program: {', '.join(replaced)}")
replaced = defined(interposer) & in_libc - {"_init", "_fini"}
table = re.search(r"\| replaced \|.*?\n\n", Path(page).read_text(), re.DOTALL)
documented = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table[0].splitlines()[2:] if line)))
if replaced != documented:
    problems.append(f"liblockstep_interpose replaces {sorted(replaced)}, and docs/dist.md has {sorted(documented)}")
print("\n".join(problems) or f"liblockstep: none; liblockstep_interpose: {', '.join(sorted(replaced))}")
sys.exit(bool(problems))
