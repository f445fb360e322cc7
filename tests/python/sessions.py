"""Sessions whose ranks are Python, and the cells of a training whose ranks are lost."""

import json
import pathlib
import signal
import subprocess
import tempfile

import copies
from ranks import LOCKSTEP, environment

KEEP_GOING = ["--keep-going"]
# Three ranks at least: the sum of two numbers does not depend on their order, so that nothing would show with two.
WRAPPED = """import os, signal
set_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 4))
model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.001)
optimizer = OPTIMIZER
def step(number):
    optimizer.zero_grad()
    x = torch.sin(torch.arange(64.0).reshape(8, 8) * (1 + number + 100 * rank))
    model(x).square().mean().backward()
    optimizer.step()
"""
DIGEST = """digest = sum((each.double().flatten() * torch.sin(torch.arange(float(each.numel())) + i)).sum().item() for i, each in enumerate(net.parameters()))
print("digest", repr(digest), [repr(each.double().sum().item()) for each in net.buffers()] if rank == 2 else "")
"""
FIRST, SECOND = "for i in range(5): step(i)", "for i in range(5, 10): step(i)"


class Session:
    """What `lockstep run` says about cells."""

    def __init__(self, *cells, ranks=2, options=(), interrupt_at=None, **more):
        self.ranks = range(ranks)
        with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as folder:  # a socket's path is short
            script = pathlib.Path(folder, "cells.py")
            script.write_text("".join(f"# %%\n{each}\n" for each in cells))
            variables = environment(**{"XDG_RUNTIME_DIR": folder, "LOCKSTEP_PYTHON": copies.interpreter(), **more})
            process = subprocess.Popen([LOCKSTEP, "run", str(script), "-n", str(ranks), "--json", "-", *options],
                                       env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       cwd=folder)
            lines = []
            if interrupt_at:
                for line in process.stdout:
                    lines.append(line)
                    if interrupt_at in line:
                        process.send_signal(signal.SIGINT)
                        break
            rest, self.shown = process.communicate()
            self.code = process.returncode
            self.events = [json.loads(line) for line in [*lines, *rest.splitlines()]]

    def of(self, kind):
        return [each for each in self.events if each["event"] == kind]

    def values(self):
        return [(each["ranks"], each["text"]) for each in self.of("value")]

    def statuses(self):
        return [each["status"] for each in self.of("cell")]

    def output(self, rank=0):
        return "".join(each["text"] for each in self.of("output") if rank in each["ranks"])

    def lines(self, begin):
        """Those of the output that begin so, by rank."""
        return {rank: [each for each in self.output(rank).splitlines() if each.startswith(begin)] for rank in self.ranks}

    def said(self):
        """The session's messages and values."""
        return "\n".join([*(each["text"] for each in self.of("message")), *(text for _, text in self.values())])
