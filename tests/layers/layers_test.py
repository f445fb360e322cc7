#!/usr/bin/env python3
"""Compares the #includes of the tree with the table in layers.txt.

layers_test.py ROOT         exits with 1 and names every line that includes a folder above its own
layers_test.py --self-test  puts a wrong include into a copy of a small tree and expects it to be found
"""

import re
import sys
import tempfile
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<((?:torch|ATen|c10)/[^>]+)>)', re.MULTILINE)


def read_table(path):
    """Gives, for each folder, the set of all folders that it may include, and the folders without LibTorch."""
    direct, plain = {}, set()
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        folder, _, rest = line.partition(":")
        rest = rest.strip()
        if rest.endswith("no LibTorch"):
            plain.add(folder)
            rest = rest[: -len("no LibTorch")]
        direct[folder] = rest.split()

    def all_of(folder):
        found = set()
        for each in direct[folder]:
            if each not in direct:
                sys.exit(f"{path}: the line of {folder} names {each}, which has no line")
            found |= {each} | all_of(each)
        return found

    return {folder: all_of(folder) for folder in direct}, plain


def sources(root, table):
    """The headers and sources of the table's folders, as paths relative to root."""
    for room in sorted({folder.split("/")[0] for folder in table}):
        for path in sorted((root / room).rglob("*")):
            if path.suffix in (".h", ".cpp") and path.is_file():
                yield path.relative_to(root)


def folder_of(path, table):
    """The nearest folder of the table: a folder within a layer belongs to it."""
    for parent in path.parents:
        if str(parent) in table:
            return str(parent)
    return None


def breaches(root, table_path):
    table, plain = read_table(table_path)
    for path in sources(root, table):
        own = folder_of(path, table)
        if own is None:
            yield f"{path}:1: its folder has no line in {table_path.name}"
            continue
        text = (root / path).read_text()
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start(1) if match[1] else match.start(2)) + 1
            if match[2]:
                if own in plain:
                    yield f"{path}:{line}: {own} is without LibTorch, and includes <{match[2]}>"
                continue
            if not (root / match[1]).is_file():
                continue
            other = folder_of(Path(match[1]), table)
            if other != own and other not in table[own]:
                yield f"{path}:{line}: {own} may not include {match[1]}, a file of {other}"
            elif own in plain and other not in plain:
                yield f"{path}:{line}: {own} is without LibTorch, and {match[1]} is not"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "low").mkdir()
        (root / "high").mkdir()
        (root / "layers.txt").write_text("low: no LibTorch\nhigh: low\n")
        (root / "low/a.h").write_text("#pragma once\n")
        (root / "high/b.h").write_text('#pragma once\n#include "low/a.h"\n#include <torch/torch.h>\n')
        assert list(breaches(root, root / "layers.txt")) == []
        (root / "low/a.h").write_text('#pragma once\n\n#include "high/b.h"\n#include <torch/torch.h>\n')
        found = list(breaches(root, root / "layers.txt"))
        assert found == [
            "low/a.h:3: low may not include high/b.h, a file of high",
            "low/a.h:4: low is without LibTorch, and includes <torch/torch.h>",
        ], found


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit()
    found = list(breaches(Path(sys.argv[1]), Path(__file__).with_name("layers.txt")))
    print("\n".join(found))
    print(f"{len(found)} includes break the table of layers" if found else "All includes follow the table of layers")
    sys.exit(1 if found else 0)
