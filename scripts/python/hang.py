"""A job that stops making progress, and the command that says why. Nothing of Lockstep is in this file.

    lockstep run --hang-timeout 10 -- torchrun --standalone --nproc_per_node=2 scripts/python/hang.py

Rank 1 has fewer batches than rank 0. It leaves the loop and waits for the end of the training, while rank 0 waits for
its gradients.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()

torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(20, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

batches = 20 if rank == 0 else 18
for step in range(batches):
    x = torch.randn(16, 20)
    loss = torch.nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

dist.barrier()
if rank == 0:
    print("done")
dist.destroy_process_group()
