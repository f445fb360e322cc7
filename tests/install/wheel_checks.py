#!/usr/bin/env python3
"""Runs what a wheel promises, in an environment where it is installed beside torch.

    ENVIRONMENT/bin/python wheel_checks.py [all|hang|cells]

all (default): the program, jobs that hang and drift, a prompt over a job, a session of Python ranks, the kernel in
jupyter_client (if that is installed), the comparison of checkpoints, errors that cross between LibTorch and Lockstep.
hang: a job that hangs alone. cells: lesson 01 in C++, and a C++ cell in a session of Python ranks, by the wheel
lockstep-cells.

Prints the checks, and ends with 1 if one fails. tools/try-wheel runs it in fresh systems.
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import site
import subprocess
import sys
import tempfile
import time

BIN, SHARE = pathlib.Path(sys.executable).parent, pathlib.Path(sys.prefix) / "share"
if sys.prefix == sys.base_prefix:  # no virtual environment, so pip install --user
    BIN, SHARE = pathlib.Path(site.getuserbase()) / "bin", pathlib.Path(site.getuserbase()) / "share"
SCRIPTS = SHARE / "lockstep" / "scripts"
PATH = f"{BIN}:{pathlib.Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
PACKAGE = pathlib.Path(importlib.util.find_spec("lockstep").origin).parent  # torch takes a second to import
failures = 0

# On ranks whose calls differ, Lockstep's backend throws in a call of LibTorch's.
MISMATCH = """
import torch, torch.distributed as dist, lockstep
dist.init_process_group("lockstep")
try:
    dist.all_reduce(torch.ones(2 + dist.get_rank()))
except RuntimeError as error:
    print("caught by torch:", error)
"""

STOPS = """
import torch, torch.distributed as dist, lockstep
dist.init_process_group("gloo")
weight = torch.full((2,), 3.0 + dist.get_rank())
lockstep.breakpoint()
print("went on with", weight.tolist(), flush=True)
"""

SESSION = """# %%
t = torch.ones(2) * (rank + 1)
dist.all_reduce(t)
t.sum().item()
# %%
%%rank 1
print("only on", rank)
"""

# A C++ cell beside Python ones.
MIXED = """# %%
t = torch.ones(3)
# %%
%%cpp
py::tensor("t").sum().item<float>() + rank
"""

# In Jupyter's own way: the kernel that `lockstep kernel install` has installed.
KERNEL = """
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name="lockstep-python")
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
def show(message):
    content = message["content"]
    print(message["msg_type"], content.get("text") or content.get("data", {}).get("text/plain") or content)
try:
    client.execute_interactive("x = torch.ones(2) * (rank + 1)\\ndist.all_reduce(x)\\nx", output_hook=show, timeout=60)
finally:
    client.stop_channels()
    manager.shutdown_kernel()
"""

# The session of `%load_ext lockstep`, by a package that is not where torch is: an environment may have torch of another one.
APART = """
from lockstep.ipython._kernel import Kernel
kernel = Kernel(["--python", "-n", "2"])
try:
    kernel.execute("import os\\ndist.get_world_size() * 21, os.environ['MPLBACKEND']", print)
finally:
    kernel.close()
"""

# What LibTorch throws in a call of Lockstep's: a tensor without storage can't be read.
META = """
import torch, lockstep
print("ok:", bool(lockstep.verify(torch.ones(2))))
try:
    lockstep.verify(torch.ones(2, device="meta"))
except Exception as error:
    print("caught by lockstep:", type(error).__name__, error)
"""


def report(name, passed, said):
    global failures
    failures += not passed
    print(f"{'ok' if passed else 'FAILED':6}  {name}", flush=True)
    if not passed:
        print(said, flush=True)


def environment(**more):
    return {**os.environ, "PATH": PATH, "OMP_NUM_THREADS": "1", **more}


def check(name, command, code, *texts, **more):
    """Whether the command ends with `code`, and its output has the `texts`."""
    done = subprocess.run(["timeout", "120", *(str(each) for each in command)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=environment(**more))
    said = " ".join(done.stdout.split())  # however wide the lines are
    missing = [text for text in texts if text not in said]
    report(name, done.returncode == code and not missing,
           f"{command}: ended with {done.returncode} rather than {code}; lacks {missing}\n{done.stdout}")


def torchrun(*program):
    command = ["torchrun"] if shutil.which("torchrun", path=PATH) else [sys.executable, "-m", "torch.distributed.run"]
    return [*command, "--standalone", "--nproc_per_node=2", *program]


def torch_version():
    return tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2])


def check_hang():
    """With torch's hooks around collectives (2.14), calls are compared before data moves, and the job raises instead."""
    job = ["lockstep", "run", "--hang-timeout", "10", "--", *torchrun(SCRIPTS / "python" / "hang.py")]
    check("a job that hangs", job, 4, "made no progress", "rank 0 called all_reduce", "hang.py:25", "rank 1 called barrier",
          LOCKSTEP_CHECK_COLLECTIVES="0")
    if torch_version() >= (2, 14):
        check("calls that differ, before they hang", job, 1, "rank 0 called all_reduce", "hang.py:25", "rank 1 barrier",
              "All ranks of a group must make the same calls")


def check_metadata():
    """pip is told of the torch that the libraries are for, and leaves this one alone."""
    requirements = importlib.metadata.requires("lockstep") or []
    (of_torch,) = [each for each in requirements if each.startswith("torch")]
    at_least = re.search(r">=(\d+)\.(\d+)", of_torch)
    below = re.search(r"<(\d+)\.(\d+)", of_torch)
    fits = at_least and below and tuple(map(int, at_least.groups())) <= torch_version() < tuple(map(int, below.groups()))
    report("the requirement on torch", bool(fits), f"{of_torch}, and torch {torch_version()} is installed")


def check_attach(folder):
    (folder / "stops.py").write_text(STOPS)
    (folder / "cells.py").write_text("# %%\nweight.sum().item()\n# %%\nweight += 1\n")
    job = subprocess.Popen(torchrun("stops.py"), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True)
    try:
        said = ""
        while said.count("lockstep attach") < 2:  # each of the two ranks says it when it has stopped
            line = job.stdout.readline()
            said += line
            if not line:
                break
        check("a prompt over the job", ["lockstep", "attach", str(job.pid), "--run", "cells.py"], 0, "6.0", "8.0")
        said += job.communicate(timeout=120)[0]
        report("the job goes on with what a cell has set", "went on with [4.0, 4.0]" in said and "[5.0, 5.0]" in said, said)
    finally:
        job.kill()


def check_kernel():
    if importlib.util.find_spec("jupyter_client") is None:
        print("skipped  the kernel: there is no jupyter_client")
        return
    check("lockstep kernel install", ["lockstep", "kernel", "install", "--user", "--python", "-n", "2"], 0)
    check("a cell in the kernel", [sys.executable, "-c", KERNEL], 0, "tensor([3., 3.])")


def check_cells(folder):
    (folder / "mixed.py").write_text(MIXED)
    os.environ["PATH"] = PATH  # of Popen
    begin = time.monotonic()
    lesson = subprocess.Popen(["lockstep", "run", SCRIPTS / "lessons" / "01-ddp-from-scratch.cpp", "-n", "2", "--json", "-"],
                              cwd=SHARE / "lockstep", env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)  # where its data is
    first = None
    lines = []
    for line in lesson.stdout:
        lines.append(line)
        if first is None and '"event":"cell"' in line.replace(" ", ""):
            first = time.monotonic() - begin
    errors = lesson.stderr.read()
    code = lesson.wait()
    report("lesson 01 in C++ on two ranks", code == 0 and first is not None, "".join(lines[-20:]) + errors)
    if first is not None:
        print(f"        its first cell has run after {first:.1f} s, the last after {time.monotonic() - begin:.1f} s")
    check("lockstep doctor", ["lockstep", "doctor"], 0, "clang 19", "A session can start.")
    check("a C++ cell beside Python ones", ["lockstep", "run", "mixed.py", "-n", "2"], 0, "3", "4")


def check_all(folder):
    import torch

    (folder / "mismatch.py").write_text(MISMATCH)
    (folder / "session.py").write_text(SESSION)
    torch.manual_seed(0)
    state = torch.nn.Linear(8, 4).state_dict()
    torch.save(state, "rank0.pt")
    torch.save(state, "rank1.pt")
    torch.save({**state, "bias": state["bias"] + 1}, "rank2.pt")
    (folder / "broken.pt").write_bytes((folder / "rank0.pt").read_bytes()[:700])

    check_metadata()
    check("lockstep --version", ["lockstep", "--version"], 0, "lockstep ")
    check("python -m lockstep", [sys.executable, "-m", "lockstep", "--version"], 0, "lockstep ")
    check("man page", ["test", "-s", SHARE / "man" / "man1" / "lockstep.1"], 0)
    if not (PACKAGE / "bin" / "lockstep-compiler").is_file():
        check("lockstep doctor", ["lockstep", "doctor"], 0, "libtorch", "can't compile C++ cells", "Jobs can be watched.")
    if list(PACKAGE.glob("torch*/lib/liblockstep_cuda.so")):
        check("the plug-in for GPUs is found", ["lockstep", "doctor"], 0, "gpu plug-in has code for")
    check("the library in a program", [sys.executable, "-c", META], 0, "ok: True", "caught by lockstep:")
    check("equal checkpoints", ["lockstep", "verify", "rank0.pt", "rank1.pt"], 0)
    check("different checkpoints", ["lockstep", "verify", "rank0.pt", "rank1.pt", "rank2.pt"], 1, "bias")
    check("a broken checkpoint: LibTorch throws, Lockstep catches", ["lockstep", "verify", "rank0.pt", "broken.pt"], 2,
          "broken.pt")
    check("ranks that differ: Lockstep throws, LibTorch catches", torchrun("mismatch.py"), 0,
          "caught by torch: rank", "All ranks of a group must make the same calls")
    check("a job that drifts", torchrun(SCRIPTS / "python" / "drift.py"), 0, "ranks 0-1 differ", "drift.py, line 31, step 30")
    check_hang()
    check_attach(folder)
    check("a session of Python ranks", ["lockstep", "run", "session.py", "-n", "2"], 0, "6.0", "only on 1")
    check("the same where the environment is not active", [BIN / "lockstep", "run", "session.py", "-n", "2"], 0, "6.0",
          PATH=os.defpath)
    # The relays connect by tcp, with ZeroMQ's encryption.
    check("a session whose ranks torchrun starts",
          ["lockstep", "run", "session.py", "--launch", " ".join(torchrun("--no-python"))], 0, "6.0", "only on 1")
    check_kernel()
    for package in ("lockstep", "lockstep_autoload"):
        shutil.copytree(PACKAGE.parent / package, folder / "apart" / package)
    check("a session of IPython, where torch is another environment's", [sys.executable, "-c", APART], 0, "(42, 'Agg')",
          PYTHONPATH=str(folder / "apart"), MPLBACKEND="module://matplotlib_inline.backend_inline")


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.chdir(folder)
        {"all": check_all, "hang": lambda _: check_hang(), "cells": check_cells}[what](folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
