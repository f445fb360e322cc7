"""A training that stops in step 3, and the prompt over all of its ranks.

    lockstep run -- torchrun --standalone --nproc_per_node=2 scripts/python/stop.py     # the prompt opens in this terminal
    lockstep attach                                                        # or, of a job without `lockstep run`

Rank 1 clips its weights in step 2, in code that only it runs. docs/python.md shows what to type.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lockstep

dist.init_process_group("gloo")
rank = dist.get_rank()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

torch.manual_seed(100 + rank)
for step in range(1, 6):
    x = torch.randn(16, 20)
    loss = torch.nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 1 and step == 2:
        with torch.no_grad():
            model.module[2].weight.clamp_(-0.05, 0.05)
    lockstep.breakpoint(step == 3)

if rank == 0:
    print(f"trained {step} steps")

dist.destroy_process_group()
