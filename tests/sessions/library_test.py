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
%%writefile options.h
#pragma once
#include <string>
namespace ops {
struct Options { std::string name = "ops"; int factor = 3; };
}
// %%
%%writefile ops.h
#pragma once
#include "options.h"
extern "C" int twice(int);
int halved(int);
namespace ops {
int times(int, const Options& = {});
inline int times_and_one(int x) { return times(x) + 1; }
template <class T> T sum(T, T);
extern int calls;
class Counter {
 public:
  Counter();
  virtual ~Counter();
  virtual int next();
  static int made;
 private:
  int at_ = 0;
};
}
// %%
%%writefile ops.cpp
#include "ops.h"
extern "C" int twice(int x) { return 2 * x; }
int halved(int x) { return x / 2; }
namespace ops {
int calls = 0;
int times(int x, const Options& options) { return ++calls, x * options.factor; }
template <class T> T sum(T x, T y) { return x + y; }
template int sum(int, int);
int Counter::made = 0;
Counter::Counter() { ++made; }
Counter::~Counter() = default;
int Counter::next() { return ++at_; }
}
// %%
!CXX -shared -fPIC -o libops.so ops.cpp
// %% read as a header of one's own, whose definitions cells would have
#include "ops.h"
ops::Options mine;
// %% tags=["raises-exception"]
halved(4)
// %%
%lib ops ops.h
// %%
twice(21) + rank
// %%
struct ByTwo : ops::Counter { int next() override { return Counter::next() + Counter::next(); } } counter;
std::vector<int>{halved(8), ops::times(4), ops::times_and_one(4), ops::sum(2, 3), counter.next(), ops::Counter::made, ops::calls}
// %% the library's header again
#include "ops.h"
ops::times(2, {.factor = 50})
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
                         "'halved(int)' is declared, but nothing that is loaded on this rank defines it",
                         "%lib LIBRARY HEADER", "0-1 = {4, 12, 13, 5, 3, 1, 2}\n", "0-1 = 100\n",
                         "0   = 42\n1   = 43\n", "is loaded already", "there is no library", "did you mean libops.so?",
                         "can't be loaded", "0-1 = 2\n"):
            if expected not in run.stdout:
                problems.append(f"missing: {expected!r}")
        (folder / "check.cpp").write_text(f"// %%\n%cd {folder}\n// %%\n%lib ops ops.h\n// %%\nops::times(2)\n")
        check = subprocess.run([lockstep, "check", str(folder / "check.cpp")], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
        if check.returncode != 0:
            problems.append(f"lockstep check:\n{check.stdout}")
        if (folder / "lines.txt").read_text() != "first\n%second\n":
            problems.append(f"lines.txt holds {(folder / 'lines.txt').read_text()!r}")
        if run.returncode != 2:
            problems.append(f"exit code {run.returncode}")
        if problems:
            print(run.stdout, *problems, sep="\n")
        return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
