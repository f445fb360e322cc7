#!/usr/bin/env python3
"""A job of torchrun with the package `lockstep`: what an engineer does with a training in Python, once, with answers
that have to be right.

    python_job.py LOCKSTEP RANKS DEVICE BACKEND     needs the package in PYTHONPATH, and a Python with torch

DEVICE: cpu, cuda (a GPU for each rank) or cuda:0 (the ranks share that GPU; NCCL takes each for a host). BACKEND: gloo
or nccl. `lockstep run` starts the ranks, and `lockstep attach` asks them while they wait at a breakpoint. Exit code 0 if every answer was right.
"""
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading

# `lockstep run` says it of each rank once: "rank 0 waits in breakpoint()", "ranks 1,3-5 wait in breakpoint()".
STOPPED = re.compile(r"^lockstep: ranks? ([0-9,-]+) waits? in breakpoint\(\)")


# ---- A rank ----------------------------------------------------------------------------------------------------------

def first_gpu_has_context():
    """Whether this process has its context on GPU 0. Asks the driver, which makes none."""
    flags, active = ctypes.c_uint(), ctypes.c_int()
    cuda = ctypes.CDLL("libcuda.so.1")
    if cuda.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)) != 0:
        raise RuntimeError("the driver does not say which contexts there are")
    return bool(active.value)


def run_rank(folder, where, backend):
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import lockstep

    local_rank = int(os.environ["LOCAL_RANK"])
    if backend == "nccl" and where == "cuda:0":
        os.environ["NCCL_HOSTID"] = f"rank-{local_rank}"
        os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    device = torch.device("cuda", local_rank) if where == "cuda" else torch.device(where)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 16)).to(device)
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)  # the default on a GPU
    torch.manual_seed(100 + rank)
    watching, sentinel = lockstep.watch(model, optimizer, every=2), lockstep.nan_watch(model, optimizer)

    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    said = {"rank": rank}
    for step in range(1, 7):
        loss = train(torch.randn(32, 512, device=device))
        if step == 4:
            lockstep.breakpoint()
    said["equal"] = bool(lockstep.verify(model)) and bool(lockstep.verify(optimizer, model=model))
    said["right gradients"] = bool(lockstep.grads(model))
    said["memory"] = bool(lockstep.memory(model=model, optimizer=optimizer))
    said["ranks"] = bool(lockstep.ranks())

    # What one rank changes is found, and the parameter is named.
    with torch.no_grad():
        if rank == size - 1:
            layers[2].weight[3, 5] += 1e-3
    said["changed"] = bool(lockstep.verify(model))

    # A NaN is found, and the rank named that it comes from.
    x = torch.randn(32, 512, device=device)
    if rank == size - 1:
        x[0, 0] = float("nan")
    train(x)
    if device.type == "cuda":
        torch.cuda.synchronize()
    watching.close()
    said["bad steps"] = sentinel.status()["bad_steps"]
    sentinel.close()
    # The library asked this rank's own device alone.
    said["context on the first GPU"] = where == "cuda" and local_rank != 0 and first_gpu_has_context()
    dist.barrier()
    dist.destroy_process_group()
    (folder / f"rank-{rank}.json").write_text(json.dumps(said))
    return 0


# ---- The engineer ----------------------------------------------------------------------------------------------------

class Job:
    """The job under `lockstep run`, and what it has written."""

    def __init__(self, lockstep, ranks, where, backend, folder):
        self.lockstep, self.ranks, self.folder, self.output = lockstep, ranks, folder, ""
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        command = [lockstep, "run", "--findings", str(folder / "findings"), "--", sys.executable, "-m",
                   "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", __file__, "--rank",
                   str(folder), where, backend]
        self.process = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.stopped, self.stop_or_end = set(), threading.Event()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.output += line
            if found := STOPPED.match(line):
                ends = [part.split("-") for part in found[1].split(",")]
                self.stopped.update(rank for each in ends for rank in range(int(each[0]), int(each[-1]) + 1))
            if len(self.stopped) == self.ranks:
                self.stop_or_end.set()
        self.stop_or_end.set()

    def has_stopped(self):
        """Waits for the breakpoint of all ranks; false where the job has ended before it."""
        self.stop_or_end.wait()
        return len(self.stopped) == self.ranks

    def ask(self, *cells):
        """The events of `lockstep attach` with these cells."""
        script, events = self.folder / "cells.py", self.folder / "events"
        script.write_text("".join(f"# %%\n{cell}\n" for cell in cells))
        # Other jobs of this user may run.
        done = subprocess.run([self.lockstep, "attach", str(self.process.pid), "--run", str(script), "--json", str(events)],
                              env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        print(done.stdout)
        return done.returncode, [json.loads(line) for line in events.read_text().splitlines()]

    def end(self):
        self.process.wait()
        self.reader.join()
        return self.process.returncode


def main():
    if sys.argv[1] == "--rank":
        return run_rank(pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4])
    lockstep, ranks, where, backend = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    wrong = []

    def must(fact, text):
        if not fact:
            wrong.append(text)

    everyone = list(range(ranks))
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as name:
        folder = pathlib.Path(name)
        job = Job(lockstep, ranks, where, backend, folder)
        try:
            if job.has_stopped():
                code, events = job.ask("step", "float(loss.detach())", "model.module[0].weight.device.type", "%hang")
                # Equal values of ranks are one event or several.
                values = {(each["cell"], rank): each["text"] for each in events if each["event"] == "value"
                          for rank in each["ranks"]}
                must(code == 0, f"`lockstep attach` ended with {code}")
                for rank in everyone:
                    must(values.get((1, rank)) == "4", f"rank {rank} is not in step 4: {values}")
                    must(values.get((3, rank)) == repr(where.split(":")[0]),
                         f"the parameters of rank {rank} are not on {where}: {values}")
        except BaseException:
            job.process.send_signal(signal.SIGTERM)  # which ends the ranks, too
            raise
        finally:
            code = job.end()
        print(job.output)
        # Faults were found, and the job itself ended well.
        must(code == 1, f"`lockstep run` ended with {code}, and 1 is that of findings")
        for rank in everyone:
            file = folder / f"rank-{rank}.json"
            if not file.exists():
                wrong.append(f"rank {rank} has not come to its end")
                continue
            said = json.loads(file.read_text())
            for question in ("equal", "right gradients", "memory", "ranks"):
                must(said[question], f"rank {rank}: {question} is false")
            must(not said["changed"], f"rank {rank}: the change of one rank was not found")
            must(not said["context on the first GPU"], f"rank {rank} has a context on the GPU of rank 0")
            # The reduction brings it to the parameters of all.
            must(said["bad steps"] == 1, f"rank {rank}: {said['bad steps']} steps with NaN")
        findings = [json.loads(line) for line in (folder / "findings").read_text().splitlines()]
        faults = [each for each in findings if each.get("severity") == "fault"]
        changed = [each for each in faults if each["inspector"] == "verify" and "2.weight" in json.dumps(each)]
        must(changed and changed[0]["ranks"], f"no finding names the parameter that was changed: {faults}")
        must(any(each["inspector"].startswith("nan") and each["ranks"] == [ranks - 1] for each in faults),
             f"no finding names the rank with the NaN: {faults}")
    for each in wrong:
        print("WRONG:", each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
