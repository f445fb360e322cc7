#!/usr/bin/env python3
"""What is linked as a portable build links it needs no more than the floor, and the check of a build refuses what does.

    portable_test.py TREE SCRATCH
"""

import os
import pathlib
import re
import subprocess
import sys

tree, scratch = map(pathlib.Path, sys.argv[1:])
source = tree / "cmake" / "portable"
FLOOR = ["GLIBC_2.28", "GLIBCXX_3.4.25", "CXXABI_1.3.11", "GCC_7.0.0"]
PROGRAM = """
#include <sys/stat.h>
#include <unistd.h>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <iostream>
#include <thread>
static std::string constructed = "constructed";  // before main
int main(int, char** arguments) try {
  struct stat file;
  std::jthread([] {}).join();
  std::mutex mutex;
  std::unique_lock lock(mutex);
  const bool waited = std::condition_variable().wait_for(lock, std::chrono::milliseconds(1)) == std::cv_status::timeout;
  std::cout << constructed << " " << (stat(arguments[0], &file) == 0) << (dlopen("libm.so.6", RTLD_LAZY) != nullptr)
            << (gettid() == getpid()) << waited << " " << sigabbrev_np(SIGTERM) << " " << std::pow(file.st_mode != 0, 2.0) << std::endl;
  std::filesystem::file_size("/nonexistent");
} catch (const std::filesystem::filesystem_error& error) {
  std::cout << "caught " << error.code().value() << std::endl;
}
"""


def run(*command):
    done = subprocess.run([str(each) for each in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def succeed(*command):
    code, said = run(*command)
    assert code == 0, f"{command}: {said}"
    return said


def file_of(name):
    return pathlib.Path(succeed("clang++-19", f"-print-file-name={name}").strip())


def check(program, *allowed):
    return run(sys.executable, source / "check.py", *FLOOR, "--", *allowed, "--", program)


if not any(os.access(f"{folder}/ld.lld", os.X_OK) for folder in ["/usr/lib/llvm-19/bin", *os.environ["PATH"].split(":")]):
    print("skipped: there is no lld")
    sys.exit(77)
scratch.mkdir(parents=True, exist_ok=True)
os.chdir(scratch)
system = ["ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "libgcc_s.so.1", "libstdc++.so.6"]
succeed(sys.executable, source / "stubs.py", "stubs", *FLOOR, "--", *map(file_of, system))
for name in ("clockwait", "newer", "start"):
    succeed("clang-19", "-O2", "-fPIC", "-c", source / f"{name}.c", "-o", f"{name}.o")
succeed("ar", "rcs", "libclockwait.a", "clockwait.o")
# The worker has functions of its own that stand in front of the C library's: a second one of that name can't be linked.
exported = set(re.findall(r"\w+(?=;)", (tree / "worker" / "exports.txt").read_text()))
defined = {each.split()[-1] for each in succeed("nm", "--defined-only", "--extern-only", "newer.o").splitlines()}
assert "poll" in exported and "gettid" in defined and not exported & defined, exported & defined
pathlib.Path("program.cpp").write_text(PROGRAM)
succeed("clang++-19", "-std=c++20", "-O1", "-fPIC", "-c", "program.cpp", "-o", "program.o")

succeed("clang++-19", "program.o", "-o", "usual")
code, said = check("usual", *system)
assert code == 1 and "needs GLIBC_2." in said, said
succeed("clang++-19", "-fuse-ld=lld", "-nodefaultlibs", "program.o", "start.o", "newer.o", "libclockwait.a", "stubs/libstdc++.so.6",
        file_of("libstdc++.a"), file_of("libgcc.a"), *(f"stubs/{each}" for each in system if each != "libstdc++.so.6"),
        file_of("libc_nonshared.a"), "-Wl,--exclude-libs,ALL", "-o", "portable")
code, said = check("portable", *system)
assert code == 0 and "portable: needs" in said, said
code, said = check("portable", "libc.so.6")
assert code == 1 and "needs libstdc++.so.6, which not every system has" in said, said
for program in ("usual", "portable"):
    said = succeed(f"./{program}")
    assert said == "constructed 1111 TERM 1\ncaught 2\n", said
