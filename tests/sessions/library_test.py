#!/usr/bin/env python3
"""A library that is written, built and loaded from a session: %%writefile, !COMMAND and %lib.

    library_test.py LOCKSTEP CXX
"""
import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = """// %%
%cd FOLDER
// %%
%%writefile ops.h
#pragma once
// % is no magic here, nor is this:
//%sync
extern "C" int twice(int);

%whatever
// %%
%%writefile -a lines.txt
first
// %%
%%writefile -a lines.txt
%second
// %%
%%writefile ops.h
extern "C" int twice(int);
// %%
%%writefile ops.cpp
extern "C" int twice(int x) { return 2 * x; }
// %%
!CXX -shared -fPIC -o libops.so ops.cpp
// %%
%lib ops ops.h
// %%
twice(21) + rank
// %%
%lib ./libops.so
// %% tags=["raises-exception"]
%lib nowhere_to_be_found
// %%
twice(1)
// %% a slip, which ends the script as bad usage
%lib ./libopps.so
"""


def main():
    lockstep, compiler = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "script.cpp").write_text(SCRIPT.replace("FOLDER", str(folder)).replace("CXX", compiler))
        run = subprocess.run([lockstep, "run", str(folder / "script.cpp"), "-n", "2"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                             env=dict(os.environ, NO_COLOR="1", LC_ALL="C.UTF-8"))
        problems = []
        for expected in (f"wrote {folder}/ops.h", f"wrote over {folder}/ops.h", f"appended to {folder}/lines.txt",
                         "0   = 42\n1   = 43\n", "is loaded already", "there is no library", "did you mean libops.so?",
                         "can't be loaded", "0-1 = 2\n"):
            if expected not in run.stdout:
                problems.append(f"missing: {expected!r}")
        if (folder / "lines.txt").read_text() != "first\n%second\n":
            problems.append(f"lines.txt holds {(folder / 'lines.txt').read_text()!r}")
        if run.returncode != 2:
            problems.append(f"exit code {run.returncode}")
        if problems:
            print(run.stdout, *problems, sep="\n")
        return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
