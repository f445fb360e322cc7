"""One rank whose recorder has many collectives with their stacks, and whose program ends at once."""

import os

import torch
import torch.distributed as dist

import lockstep

os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def record(depth):
    if depth > 0:
        return record(depth - 1)
    for _ in range(400):
        dist.all_reduce(torch.ones(1))


record(30)
lockstep.ranks()  # starts the agent
