"""Jobs of hooks_test.py, which nobody has edited for lockstep: hooks.py gloo FOLDER CASE."""

import os
import pathlib
import sys
import threading
import time
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from backend import FOLDER, data_parallel, digest, groups_again, net, operations, sharded, train

CASE = sys.argv[3]
FOREVER = 600


def steps(number):
    for _ in range(number):
        dist.all_reduce(torch.ones(4, 3))


# ---- Calls that differ ----------------------------------------------------------------------------------------------


def differs(call, tensor):
    """Says whether the data of a rank that raised is as it was."""
    before = tensor.clone()
    try:
        call()
    except RuntimeError as error:
        if "All ranks of a group must make the same calls" in str(error):
            print("untouched" if torch.equal(tensor, before) else "changed", flush=True)
        raise


def operation(rank):
    mine = torch.full((4, 3), float(rank))
    if rank == 1:
        differs(lambda: dist.all_reduce(mine), mine)  # rank 1
    else:
        differs(lambda: dist.broadcast(mine, src=1), mine)  # others


def shape(rank):
    mine = torch.full((5 if rank == 1 else 4,), float(rank))
    differs(lambda: dist.all_reduce(mine), mine)  # another shape


def dtype(rank):
    mine = torch.full((4,), float(rank), dtype=torch.float64 if rank == 1 else torch.float32)
    differs(lambda: dist.all_reduce(mine), mine)


def root(rank):
    mine = torch.full((4,), float(rank))
    differs(lambda: dist.broadcast(mine, src=1 if rank == 1 else 0), mine)


def in_a_subgroup(rank):
    pair = dist.new_group([1, 2])
    if rank > 0:
        mine = torch.full((2 + rank,), float(rank))
        differs(lambda: dist.all_reduce(mine, group=pair), mine)


# ---- Hangs ----------------------------------------------------------------------------------------------------------


def sleeps(rank):
    if rank == 1:
        time.sleep(FOREVER)  # rank 1 sleeps
    steps(1)


def ended(rank):
    if rank != 1:
        steps(1)


def another_group(rank):
    """Rank 1 is in a collective of a group in which rank 2 waits for it elsewhere."""
    pair = dist.new_group([1, 2])
    if rank == 1:
        dist.all_reduce(torch.ones(2), group=pair)  # rank 1 is here
    else:
        steps(1)


def sleeps_in_new_groups(rank):
    """The groups have had other collectives of the same numbers before."""
    steps(3)
    model = DistributedDataParallel(net())  # holds the old group
    again("sleeps")
    steps(3)
    sleeps(rank)
    return model


# ---- Healthy --------------------------------------------------------------------------------------------------------


def again(name):
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{FOLDER}/store-{name}", rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]))


def subgroups():
    """Halves of the ranks make different calls, and different numbers of them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    halves = [dist.new_group(range(i, size, 2)) for i in range(2)]
    results = []
    for i in range(20 if rank % 2 == 0 else 3):
        results.append(torch.full((3 + rank % 2,), float(rank + i)))
        dist.all_reduce(results[-1], group=halves[rank % 2])
    pair = dist.new_group(range(rank % 2, size, 2), use_local_synchronization=True)
    dist.broadcast(results[0], src=2 + rank % 2, group=pair)
    dist.destroy_process_group(pair)
    return [digest(results)]


def asynchronous():
    """Works that are waited for in another order, or never; messages; other threads."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tensors = [torch.full((50 + i,), float(rank + i)) for i in range(30)]
    works = [dist.all_reduce(each, async_op=True) for each in tensors]
    for each in reversed(works):
        each.wait()
    forgotten = torch.ones(7)
    dist.all_reduce(forgotten, async_op=True)
    received = torch.empty(9)
    asked = dist.irecv(received, (rank - 1) % size)
    dist.isend(torch.full((9,), float(rank)), (rank + 1) % size).wait()
    asked.wait()
    groups = [dist.new_group() for _ in range(3)]
    sums = [torch.full((8,), float(rank)) for _ in groups]

    def run(group, one):
        for _ in range(10):
            dist.all_reduce(one, dist.ReduceOp.MAX, group=group)

    threads = [threading.Thread(target=run, args=each) for each in zip(groups, sums)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    return [digest([*tensors, received, *sums])]


def rejected():
    """The transport rejects a call on every rank, and the program goes on."""
    for _ in range(3):
        try:
            dist.all_gather([torch.empty(2) for _ in range(dist.get_world_size())], torch.ones(3))
        except RuntimeError:
            pass
    ones = torch.ones(3)
    dist.all_reduce(ones)
    return [digest([ones])]


def made_again():
    """Models and variables hold old groups, whose names and numbers new ones have again, with other ranks and calls."""
    held, results = [], []
    for number in range(3):
        model = train(DistributedDataParallel(net(), bucket_cap_mb=0.001), steps=2 + number)
        pair = dist.new_group([0, number + 1])
        if dist.get_rank() in (0, number + 1):
            dist.all_reduce(torch.ones(number + 1), group=pair)
        held += [model, pair]
        again(f"again-{number}")
        ones = torch.ones(5 - number)
        dist.broadcast(ones, src=number % 2)
        results.append(digest([*model.parameters(), ones]))
    return results


def healthy():
    return [*data_parallel(), *sharded(), *operations(), *subgroups(), *asynchronous(), *rejected(), *groups_again(),
            *made_again()]


if __name__ == "__main__":
    warnings.simplefilter("error", UserWarning)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    if CASE == "healthy":
        pathlib.Path(FOLDER, f"rank-{dist.get_rank()}").write_text("\n".join(healthy()))
        dist.barrier()
    else:
        steps(3)
        globals()[CASE](dist.get_rank())
    dist.destroy_process_group()
