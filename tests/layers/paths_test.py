#!/usr/bin/env python3
"""Files that comments, messages and pages name by their path exist.

paths_test.py ROOT         exits with 1 and names every line whose file is missing
paths_test.py --self-test  puts a wrong path into a small tree and expects it to be found
"""

import re
import sys
import tempfile
from pathlib import Path

ROOMS = "benchmarks|cmake|collectives|compiler|cuda|ddp|docs|examples|inspectors|lockstep|protocol|python|scripts|shell|tests|tools|worker"
PATH = re.compile(rf"(?<![\w/.<>$@}}-])((?:{ROOMS})/[\w/.-]*\.(?:h|hpp|cpp|cu|py|sh|md|txt|cmake|json|in))(?![\w-])")
PLACEHOLDER = re.compile(r"(^|[/_.])(NAME|PAGE|FILE|[A-Z])([_.]|$)")
SUFFIXES = {".h", ".hpp", ".cpp", ".cu", ".py", ".sh", ".md", ".txt", ".cmake", ""}
# They tell of files that were, or make files with wrong paths on purpose.
LEFT_OUT = {"CHANGELOG.md", "tests/docs/named_commands_test.py", "tests/docs/run_page_test.py",
            "tests/layers/paths_test.py", "tests/layers/layers_test.py", "tests/layers/definitions_test.py"}


def missing_in(root, path):
    """Pairs of a line's number and a path that neither the tree nor the file's own folder has."""
    for number, line in enumerate((root / path).read_text(errors="replace").splitlines(), 1):
        for name in PATH.findall(line):
            if PLACEHOLDER.search(name) or (root / name).exists() or (root / path.parent / name).exists():
                continue
            yield number, name


def files(root):
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        first = relative.parts[0]
        if first == "build" or first == ".git" or "__pycache__" in relative.parts or not path.is_file():
            continue
        if path.suffix in SUFFIXES and str(relative) not in LEFT_OUT:
            yield relative


def check(root):
    return [f"{path}:{number}: {name} does not exist" for path in files(root) for number, name in missing_in(root, path)]


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "shell" / "text").mkdir(parents=True)
        (root / "docs").mkdir()
        (root / "docs" / "cells.md").write_text("[cells](cells.md), `shell/text/screen.h`\n")
        (root / "shell" / "text" / "screen.h").write_text(
            "// docs/cells.md and docs/rooms.md; shell/NAME.cpp\n#include <ATen/cuda/CUDAStream.h>\n")
        found = check(root)
        expected = ["shell/text/screen.h:1: docs/rooms.md does not exist"]
        if found != expected:
            sys.exit(f"found {found}, not {expected}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    else:
        lines = check(Path(sys.argv[1]).resolve())
        print("\n".join(lines))
        sys.exit(1 if lines else 0)
