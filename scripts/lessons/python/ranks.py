"""The ranks of a Python lesson. They stop at once, and run the cells of the lesson:

    torchrun --standalone --nproc_per_node=2 scripts/lessons/python/ranks.py               # in one terminal
    lockstep attach --run scripts/lessons/python/01-ddp-from-scratch.py       # in another one

`lockstep attach` without --run opens a prompt, at which one types the cells. They run in this file's frame, on every
rank, so the names below are theirs.
"""

import os
import pathlib

import torch
import torch.distributed as dist

import lockstep

local_rank = int(os.environ["LOCAL_RANK"])
# A GPU for each rank of this machine, or none for any of them: the ranks talk over one backend.
has_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
device = torch.device("cuda", local_rank) if has_gpu else torch.device("cpu")
if has_gpu:
    torch.cuda.set_device(device)

dist.init_process_group("nccl" if has_gpu else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
data = pathlib.Path(__file__).resolve().parents[2] / "data"

lockstep.breakpoint()

dist.destroy_process_group()
