#!/usr/bin/env python3
"""Jobs in Python that hang or die in NCCL, each under `lockstep run`, which has to say why. Nothing of lockstep is
imported in them.

    hang_jobs.py LOCKSTEP DEVICE BACKEND     needs a Python with torch

DEVICE: cuda:0 (two ranks share that GPU, and NCCL takes each for a host) or cpu. BACKEND: nccl or gloo. All jobs run at
the same time. Exit code 0 if every verdict was right.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

# Case: the exit code of `lockstep run`, and what its verdict says.
CASES = {
    "healthy": (0, r"rank 0 is done"),
    "locked": (4, r"rank 0 waits in all_reduce #4 .*which rank 1 has not called; rank 1 waits for a lock .*in forever"),
    "mismatched": (4, r"#4 of default_pg is not the same collective.*all_reduce float32 \[2, 2\].*in mismatched"),
    "crossed": (4, r"none of them can continue"),
    "returned": (4, r"rank 0 waits in all_reduce #4 .*rank 1 has finished"),
    "raised": (1, r"rank 1 raised ValueError: no such sample: 17 .*in raised"),
    "killed": (5, r"rank 1 was killed by SIGKILL"),
    "busy": (4, r"all ranks have called all_reduce #4 .*a device keeps it"),
}
ON_DEVICES = ("busy", "returned")  # Gloo gives the rank that waits an error


# ---- A rank ----------------------------------------------------------------------------------------------------------

def run_rank(case, where, backend):
    rank = int(os.environ["RANK"])
    if backend == "nccl":
        os.environ.update(NCCL_HOSTID=f"rank-{rank}", NCCL_SOCKET_IFNAME="lo")
    import torch
    import torch.distributed as dist
    device = torch.device(where)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend)

    def reduce(group=None):
        values = torch.ones(4, device=device)
        dist.all_reduce(values, group=group)
        return values.sum().item()  # the host waits for the device

    def forever():
        threading.Event().wait()

    def healthy():
        for _ in range(200):
            reduce()

    def locked():
        if rank == 1:
            forever()
        reduce()

    def mismatched():
        if rank == 1:
            dist.all_reduce(torch.ones(2, 2, device=device))
        else:
            dist.broadcast(torch.ones(4, 3, device=device), src=1)
        forever()

    def crossed():
        first, second = dist.new_group(), dist.new_group()
        reduce(first)  # makes the communicators
        reduce(second)
        for group in (second, first) if rank == 1 else (first, second):
            reduce(group)

    def returned():
        if rank == 0:
            reduce()

    def raised():
        if rank == 1:
            raise ValueError("no such sample: 17")
        reduce()

    def killed():
        if rank == 1:
            os.kill(os.getpid(), 9)
        reduce()

    def busy():
        if rank == 1:
            torch.cuda._sleep(200_000_000_000)  # cycles: minutes
        reduce()

    for _ in range(3):
        reduce()
    locals()[case]()
    print(f"rank {rank} is done", flush=True)


# ---- The jobs --------------------------------------------------------------------------------------------------------

def run_job(lockstep, case, where, backend, folder):
    """The exit code and the output of the job."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([lockstep, "run", "--hang-timeout", "8", "--", sys.executable, "-m", "torch.distributed.run",
                           "--standalone", "--nproc_per_node=2", __file__, "--rank", case, where, backend],
                          env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    return done.returncode, done.stdout


def main():
    if sys.argv[1] == "--rank":
        return run_rank(*sys.argv[2:])
    lockstep, where, backend = sys.argv[1:]
    wrong = []

    def check(case, folder):
        code, output = run_job(lockstep, case, where, backend, folder)
        expected, verdict = CASES[case]
        if code != expected or not re.search(verdict, output):
            wrong.append(case)
            print(f"---- {case}: exit code {code}, expected {expected} and /{verdict}/\n{output}")
        else:
            print(f"---- {case}: {next((line for line in output.splitlines() if line.startswith('✗')), 'no verdict')}")

    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as name:
        jobs = []
        for case in CASES:
            if case in ON_DEVICES and where == "cpu":
                continue
            folder = pathlib.Path(name) / case
            folder.mkdir()
            jobs.append(threading.Thread(target=check, args=(case, folder)))
            jobs[-1].start()
        for job in jobs:
            job.join()
    print("WRONG:" if wrong else "all verdicts were right", *wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
