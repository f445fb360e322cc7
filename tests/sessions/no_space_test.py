"""A cache with no space left: a session says so and what to do, and leaves nothing behind.

Usage: no_space_test.py LOCKSTEP. The cache is a file system of 1 MB in a name space of its own; where the system allows none, the test
is skipped (exit code 77).
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]


def main():
    lockstep = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="lockstep-space-") as folder:
        cache, script = Path(folder, "cache"), Path(folder, "one.cpp")
        cache.mkdir()
        script.write_text("1 + 1\n")
        mount = f"mount -t tmpfs -o size=1m none {cache} && "
        try:
            allowed = subprocess.run([*OWN_MOUNTS, "sh", "-c", mount + "true"], capture_output=True, timeout=60)
        except FileNotFoundError:
            return SKIPPED
        if allowed.returncode != 0:
            print("skipped: no file system can be mounted here:", allowed.stderr.decode())
            return SKIPPED
        run = subprocess.run([*OWN_MOUNTS, "sh", "-c", mount + f"{lockstep} run {script}; code=$?; find {cache} -type f; exit $code"],
                             env=dict(os.environ, XDG_CACHE_HOME=str(cache)), capture_output=True, text=True, timeout=600)
        print(run.stdout, run.stderr)
        said = run.stdout + run.stderr
        assert run.returncode == 3, run.returncode
        assert "no space for the precompiled header" in said and "Make room, or set XDG_CACHE_HOME" in said
        assert "cells.pch" not in said
    return 0


if __name__ == "__main__":
    sys.exit(main())
