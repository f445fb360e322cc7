"""A job that starts its own ranks, as Lightning does: spawn.py CASE."""

import os
import sys
import time

import torch
import torch.distributed as dist


def main(rank, meeting, case):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(4, 3))
    if rank == 1 and case == "threw":
        raise ValueError("no such sample: 17")
    if rank == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(4, 3))


if __name__ == "__main__":
    torch.multiprocessing.spawn(main, (os.path.join(os.environ["LOCKSTEP_JOB"], "meeting"), sys.argv[1]), nprocs=2)
