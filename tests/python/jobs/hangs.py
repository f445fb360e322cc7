"""Jobs of hangs_test.py that don't go on, or that do: hangs.py CASE. Nothing of lockstep is imported."""

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

CASE = sys.argv[1]
FOREVER = 600


def steps(number):
    for _ in range(number):
        dist.all_reduce(torch.ones(4, 3))


def mismatch(rank):
    if rank == 1:
        dist.all_reduce(torch.ones(2, 2))
    else:
        dist.broadcast(torch.ones(4, 3), src=1)


def shapes(rank):
    dist.all_reduce(torch.ones(5 if rank == 1 else 4))
    time.sleep(FOREVER)


def returned(rank):
    if rank == 1:
        return
    steps(1)


def threw(rank):
    if rank == 1:
        raise ValueError("no such sample: 17")
    steps(1)


def killed(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    steps(1)


def exited(rank):
    if rank == 1:
        os._exit(3)
    steps(1)


def sleeps(rank):
    if rank == 1:
        time.sleep(FOREVER)
    steps(1)


def locked(rank):
    if rank == 1:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    steps(1)


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(FOREVER)


def loader(rank):
    if rank == 1:
        for _ in torch.utils.data.DataLoader(Slow(), num_workers=1):
            pass
    steps(1)


def straggler(rank):
    for _ in range(4):
        if rank == 1:
            time.sleep(0.3)
        steps(1)


def healthy(rank):
    steps(20)


dist.init_process_group("gloo")
steps(3)
globals()[CASE](dist.get_rank())
if CASE in ("healthy", "straggler"):
    dist.destroy_process_group()
