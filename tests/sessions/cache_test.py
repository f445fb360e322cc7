#!/usr/bin/env python3
"""What a session does to the precompiled header that all sessions of a user share. Usage: cache_test.py LOCKSTEP"""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from faults_test import check, run_tests  # noqa: E402  (reads sys.argv)

LOCKSTEP = pathlib.Path(sys.argv[1])


def run_a_cell(limit=None, command="run", **changes):
    """Exit code and output of a session of one cell, with an address space of `limit` bytes; "check" only compiles."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "session.cpp"
        script.write_text("// %% one\n6 * 7\n")
        small = (lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))) if limit else None
        done = subprocess.run([LOCKSTEP, command, script, "-n", "1"], capture_output=True, text=True, timeout=600,
                              env={**os.environ, **changes}, preexec_fn=small)
        return done.returncode, done.stdout + done.stderr


def header():
    """The folder of the precompiled header."""
    compiler = LOCKSTEP.parent / "lockstep-compiler"
    return pathlib.Path(json.loads(subprocess.check_output([compiler, "--version"]))["header"])


def test_too_little_memory_costs_this_session_only():
    inventory = header() / "inventory"
    for command in ("run", "check"):  # in the first, LibTorch may fail before the compiler does
        code, text = run_a_cell(300_000 << 10, command)
        check(code == 3, f"{command}: exit code {code}: {text}")
        check("too little memory" in text and "ulimit -v" in text, text)
    check(inventory.exists(), "the header of all sessions was discarded")
    code, text = run_a_cell()
    check(code == 0 and "42" in text and "building" not in text, text)


def test_a_header_that_others_can_write_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        cache = pathlib.Path(folder) / "lockstep" / "pch"
        cache.mkdir(parents=True)
        cache.chmod(0o777)
        code, text = run_a_cell(XDG_CACHE_HOME=folder)
        check(code == 3 and f"{cache} can be written by all users" in text and "XDG_CACHE_HOME" in text, text)


if __name__ == "__main__":
    sys.exit(run_tests(globals()))
