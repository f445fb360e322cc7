"""What the watch of `lockstep run` costs a training step of a transformer: processor time of the agent's threads over
that of all threads of the rank, which other programs on the machine do not disturb.

    lockstep run --hang-timeout 60 -- torchrun --nproc_per_node=2 benchmarks/python/watch_cost.py [STEPS]

--hang-timeout decides how often ranks are asked: every S/4 seconds, from 0.1 to 5 s; without it every 2 s.
"""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60


def processor_seconds(names):
    """Of this process's threads, whose name is in `names`; of all if it is empty."""
    total = 0
    for thread in pathlib.Path("/proc/self/task").iterdir():
        try:
            if not names or (thread / "comm").read_text().strip() in names:
                total += int((thread / "schedstat").read_text().split()[0])
        except FileNotFoundError:  # it has just ended
            pass
    return total / 1e9


dist.init_process_group("gloo")
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
model = DistributedDataParallel(torch.nn.TransformerEncoder(layer, 4))
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randn(4, 64, 256)

begin, agent, rank = time.monotonic(), processor_seconds({"lockstep", "lockstep-aside"}), processor_seconds(())
for _ in range(STEPS):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
seconds = time.monotonic() - begin
agent, rank = processor_seconds({"lockstep", "lockstep-aside"}) - agent, processor_seconds(()) - rank
watched = "LOCKSTEP_JOB" in os.environ
print(f"rank {dist.get_rank()}: {STEPS} steps, {seconds / STEPS * 1e3:.0f} ms each"
      + (f"; the watch took {agent / rank:.4%} of the processor time" if watched else "; not watched"))
dist.destroy_process_group()
