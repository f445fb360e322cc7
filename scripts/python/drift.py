"""Replicas that drift apart, and the lines that find it.

    torchrun --standalone --nproc_per_node=2 scripts/python/drift.py

Rank 0 clips its weights in step 25, in code that only it runs. Nothing fails, and the loss falls as before; the watch
says when the replicas parted, and verify which parameter differs.
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

watching = lockstep.watch(model, optimizer, every=10)

torch.manual_seed(100 + rank)
for step in range(1, 51):
    x = torch.randn(16, 20)
    loss = torch.nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step == 25:
        with torch.no_grad():
            model.module[2].weight.clamp_(-0.05, 0.05)

report = lockstep.verify(model)
if rank == 0:
    print(f"loss {loss.item():.1f}; {len(report.faults)} fault in {report.findings[0].tensor}")

dist.destroy_process_group()
