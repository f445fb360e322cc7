#!/usr/bin/env python3
"""Fails if a file needs a version of a symbol above the floor, or a library that is not in the list.

    check.py FLOOR… -- LIBRARY… -- FILE…

FLOOR: as in stubs.py. LIBRARY is a pattern of the names that a file may need: of what each system has, and of what comes
with the files. Prints for each FILE the newest versions that it needs.
"""

import fnmatch
import pathlib
import re
import subprocess
import sys

from versions import family, floors_of, is_allowed, number


def read(option, file):
    return subprocess.run(["readelf", option, "--wide", file], check=True, capture_output=True, text=True).stdout


def needed_versions(file):
    """Returns [(library, version)]."""
    library, needed = "", []
    for line in read("--version-info", file).partition("Version needs section")[2].splitlines():
        if found := re.search(r"Version: \d+ +File: (\S+)", line):
            library = found.group(1)
        elif found := re.search(r"Name: (\S+) ", line):
            needed.append((library, found.group(1)))
    return needed


def problems_of(file, floors, allowed):
    for library in re.findall(r"\(NEEDED\).*\[(.*)\]", read("--dynamic", file)):
        if not any(fnmatch.fnmatch(library, pattern) for pattern in allowed):
            yield f"needs {library}, which not every system has"
    for library, version in needed_versions(file):
        if family(version) in floors and not is_allowed(version, floors):
            users = sorted(set(re.findall(rf" (\S+)@{re.escape(version)} ", read("--dyn-syms", file))))
            yield f"needs {version} of {library}, for {', '.join(users)}"


def main(arguments):
    first = arguments.index("--")
    second = arguments.index("--", first + 1)
    floors, allowed = floors_of(arguments[:first]), arguments[first + 1:second]
    failed = False
    for file in arguments[second + 1:]:
        newest = {}
        for _, version in needed_versions(file):
            if family(version) in floors:
                newest[family(version)] = max(newest.get(family(version), version), version, key=number)
        print(f"{pathlib.Path(file).name}: needs {', '.join(sorted(newest.values()))}")
        for problem in problems_of(file, floors, allowed):
            failed = True
            print(f"{file} {problem}. cmake/portable/newer.c defines functions that older systems lack", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
