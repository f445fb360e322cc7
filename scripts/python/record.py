"""A job that is recorded, fails on one rank, and is run again on that rank alone.

    lockstep run --record 4 -- torchrun --standalone --nproc_per_node=3 scripts/python/record.py
    lockstep replay FILE --rank 2 -- python scripts/python/record.py

In step 13 the data of rank 2 have a label that the model has no output for: an index error, once in a while, on one rank
of many.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import lockstep

dist.init_process_group("lockstep")
rank = dist.get_rank()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 4))
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

torch.manual_seed(rank)  # each rank has data and dropout of its own
for number in range(20):
    with lockstep.step(model, optimizer):
        x = torch.randn(16, 20)
        labels = x[:, :4].argmax(1)
        if number == 13 and rank == 2:
            labels[3] = 4
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()

dist.destroy_process_group()
