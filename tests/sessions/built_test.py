#!/usr/bin/env python3
"""Builds a session script ahead and runs the file in an installation without compiler: the output and the exit code
have to be those of `lockstep run SCRIPT`.

    built_test.py LOCKSTEP SCRIPT

Comments at the top of the script say how it is run, as for run_transcript.py. Where a file with expected output is
beside it, the script itself is not run again.
"""
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "support"))
from transcript import apply, header, joined, same_in_all_runs  # noqa: E402

DATA = TESTS.parent / "scripts" / "data"


def without_compiler(lockstep, folder):
    """An installation that has the shell, the worker and the names of LibTorch, and no more."""
    build = pathlib.Path(lockstep).resolve().parent.parent
    (folder / "bin").mkdir()
    (folder / "lib" / "lockstep").mkdir(parents=True)
    for program in ("lockstep", "lockstep-worker"):
        shutil.copy(build / "bin" / program, folder / "bin")
    for file in ("libtorch.version", "libtorch.folder", "headers.digest"):
        shutil.copy(build / "lib" / "lockstep" / file, folder / "lib" / "lockstep")
    return str(folder / "bin" / "lockstep")


MEASURED = [
    (r"(?m)^• rank \d+: (waits|in) .*\n", ""),  # a wait in a collective, on a busy machine
    (r"\b\d+\.\d{6,}\b", "N"),  # seconds that a cell has measured
    (r"\b\d+\.\d MB\b", "SIZE"),
    (r"\b(strong|weak) \d+\.\d+", r"\1 N"),
]


def same(text):
    """Columns are as wide as the times in them."""
    return re.sub(r"(?<=\S) {2,}", "  ", apply(MEASURED, same_in_all_runs(joined(text))))


def run(command, **more):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("COLUMNS", "CLICOLOR", "LOCKSTEP_"))
                   or k == "LOCKSTEP_FOLD_TIME"}
    environment.update(NO_COLOR="1", LC_ALL="C.UTF-8", **more)
    ended = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=900)
    return same(ended.stdout.decode("utf-8", "replace")), ended.returncode


def main():
    lockstep, script = sys.argv[1], pathlib.Path(sys.argv[2])
    text = script.read_text()
    options = header(text, "run", "-n 2").split()
    ranks = options[options.index("-n"):][:2]
    expected_file = script.with_suffix(".expected")
    data = [] if expected_file.exists() else ["--arg", f"data={DATA}"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        built = folder / "script.lockstep"
        said, code = run([lockstep, "build", str(script), "-o", str(built)] + ranks)
        if code != 0:
            print(f"lockstep build ended with {code}:\n{said}")
            return 1
        prefix = folder / "prefix"
        prefix.mkdir()
        bare = without_compiler(lockstep, prefix)
        seen, seen_code = run([bare, "run", str(built)] + options + data, PATH="/usr/bin:/bin",
                              XDG_CACHE_HOME=str(folder / "cache"))
    if expected_file.exists():
        wanted = same(expected_file.read_text())
        wanted_code = int(header(text, "exit", "0"))
    else:
        wanted, wanted_code = run([lockstep, "run", str(script)] + options + data)
    if seen != wanted:
        sys.stdout.writelines(difflib.unified_diff(wanted.splitlines(True), seen.splitlines(True), "script", "built"))
    if seen_code != wanted_code:
        print(f"exit code {seen_code}, and that of the script is {wanted_code}")
    return 0 if seen == wanted and seen_code == wanted_code else 1


if __name__ == "__main__":
    sys.exit(main())
