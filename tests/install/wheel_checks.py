#!/usr/bin/env python3
"""Runs what a wheel promises, in an environment where it is installed beside torch: the program, a job that hangs, the
comparison of checkpoints, errors that cross between LibTorch and Lockstep.

    ENVIRONMENT/bin/python wheel_checks.py

Prints the checks, and ends with 1 if one fails. tools/try-wheel runs it in fresh systems.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import torch

BIN = pathlib.Path(sys.executable).parent
SHARE = pathlib.Path(sys.prefix) / "share"
SCRIPTS = SHARE / "lockstep" / "scripts" / "python"
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

# What LibTorch throws in a call of Lockstep's: a tensor without storage can't be read.
META = """
import torch, lockstep
print("ok:", bool(lockstep.verify(torch.ones(2))))
try:
    lockstep.verify(torch.ones(2, device="meta"))
except Exception as error:
    print("caught by lockstep:", type(error).__name__, error)
"""


def check(name, command, code, *texts, **environment):
    """Whether the command ends with `code`, and its output has the `texts`."""
    global failures
    path = f"{BIN}:{os.environ.get('PATH', '')}"
    done = subprocess.run(["timeout", "120", *(str(each) for each in command)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **environment})
    said = " ".join(done.stdout.split())  # however wide the lines are
    missing = [text for text in texts if text not in said]
    failed = done.returncode != code or bool(missing)
    failures += failed
    print(f"{'FAILED' if failed else 'ok':6}  {name}", flush=True)
    if failed:
        print(f"{command}: ended with {done.returncode} rather than {code}; lacks {missing}\n{done.stdout}", flush=True)


def torchrun(*program):
    return ["torchrun", "--standalone", "--nproc_per_node=2", *program]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.chdir(folder)
        (folder / "mismatch.py").write_text(MISMATCH)
        torch.manual_seed(0)
        state = torch.nn.Linear(8, 4).state_dict()
        torch.save(state, "rank0.pt")
        torch.save(state, "rank1.pt")
        torch.save({**state, "bias": state["bias"] + 1}, "rank2.pt")
        (folder / "broken.pt").write_bytes((folder / "rank0.pt").read_bytes()[:700])

        check("lockstep --version", ["lockstep", "--version"], 0, "lockstep ")
        check("python -m lockstep", [sys.executable, "-m", "lockstep", "--version"], 0, "lockstep ")
        check("man page", ["test", "-s", SHARE / "man" / "man1" / "lockstep.1"], 0)
        check("lockstep doctor", ["lockstep", "doctor"], 0, "libtorch", "can't compile C++ cells", "Jobs can be watched.")
        check("the library in a program", [sys.executable, "-c", META], 0, "ok: True", "caught by lockstep:")
        check("equal checkpoints", ["lockstep", "verify", "rank0.pt", "rank1.pt"], 0)
        check("different checkpoints", ["lockstep", "verify", "rank0.pt", "rank1.pt", "rank2.pt"], 1, "bias")
        check("a broken checkpoint: LibTorch throws, Lockstep catches", ["lockstep", "verify", "rank0.pt", "broken.pt"], 2,
              "broken.pt")
        check("ranks that differ: Lockstep throws, LibTorch catches", torchrun("mismatch.py"), 0,
              "caught by torch: rank", "All ranks of a group must make the same calls")
        check("a job that drifts", torchrun(SCRIPTS / "drift.py"), 0, "ranks 0-1 differ", "drift.py, line 31, step 30")
        check("a job that hangs", ["lockstep", "run", "--hang-timeout", "10", "--", *torchrun(SCRIPTS / "hang.py")], 4,
              "made no progress", "rank 0 called all_reduce", "hang.py:25", "rank 1 called barrier")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
