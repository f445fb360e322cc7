#!/usr/bin/env python3
"""Compares the #includes of the tree, and the imports of its Python package, with the table in layers.txt.

layers_test.py ROOT         exits with 1 and names every line that includes a folder above its own, and every circle of
                            imports
layers_test.py --self-test  puts wrong lines into a copy of a small tree and expects them to be found
"""

import ast
import re
import sys
import tempfile
from pathlib import Path

PACKAGES = Path("python")  # the folder in which packages of Python are
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


def imports_of(root, path):
    """The modules of the tree that a module of Python imports, also within functions: pairs of a path and a line."""
    for node in ast.walk(ast.parse((root / path).read_text())):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        else:
            continue
        for name in names:
            there = PACKAGES.joinpath(*name.split(".")).with_suffix(".py")
            if (root / there).is_file():
                yield there, node.lineno


def python_breaches(root, table_path):
    table, _ = read_table(table_path)
    imported = {}
    for path in sorted(path.relative_to(root) for path in (root / PACKAGES).rglob("*.py")):
        own = folder_of(path, table)
        imported[path] = {}
        for other, line in imports_of(root, path):
            imported[path].setdefault(other, line)
            folder = folder_of(other, table)
            if folder != own and folder not in table.get(own, ()):
                yield f"{path}:{line}: {own} may not import {other}, a file of {folder}"
    finished, way = set(), []

    def circles(path):
        if path in way:
            circle = way[way.index(path) :] + [path]
            yield f"{circle[-2]}:{imported[circle[-2]][path]}: a circle of imports: {' → '.join(map(str, circle))}"
        elif path not in finished:
            way.append(path)
            for other in imported[path]:
                yield from circles(other)
            finished.add(way.pop())

    for path in imported:
        yield from circles(path)


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {"low/__init__": "", "high/__init__": "", "low/a": "import os\n", "low/c": "from low import a\n",
                           "high/b": "from low import a\nfrom low.a import name\n"}.items():
            (root / "python" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / f"python/{name}.py").write_text(text)
        (root / "layers.txt").write_text("python/low:\npython/high: python/low\n")
        assert list(python_breaches(root, root / "layers.txt")) == []
        (root / "python/low/a.py").write_text("def f():\n    from high.b import g\n    from low import c\n")
        found = list(python_breaches(root, root / "layers.txt"))
        assert found == [
            "python/low/a.py:2: python/low may not import python/high/b.py, a file of python/high",
            "python/low/a.py:2: a circle of imports: python/high/b.py → python/low/a.py → python/high/b.py",
            "python/low/c.py:1: a circle of imports: python/low/a.py → python/low/c.py → python/low/a.py",
        ], found
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
    root, table = Path(sys.argv[1]), Path(__file__).with_name("layers.txt")
    found = [*breaches(root, table), *python_breaches(root, table)]
    print("\n".join(found))
    print(f"{len(found)} lines break the table of layers" if found else "All lines follow the table of layers")
    sys.exit(1 if found else 0)
