"""Jobs of hangs_test.py that do not go on, or that do: hangs.py CASE. Nothing of lockstep is imported
unless its backend is chosen (HANGS_BACKEND). It is rank 1 that does what others do not, or HANGS_RANK. With
HANGS_SAYS=pid a rank writes its process id before its case begins."""

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

CASE = sys.argv[1]
CULPRIT = int(os.environ.get("HANGS_RANK", "1"))
FOREVER = 600


def steps(number):
    for _ in range(number):
        dist.all_reduce(torch.ones(4, 3))


def mismatch(rank):
    if rank == CULPRIT:
        dist.all_reduce(torch.ones(2, 2))
    else:
        dist.broadcast(torch.ones(4, 3), src=CULPRIT)


def shapes(rank):
    dist.all_reduce(torch.ones(5 if rank == CULPRIT else 4))
    time.sleep(FOREVER)


def dtypes(rank):
    dist.all_reduce(torch.ones(4, dtype=torch.float64 if rank == CULPRIT else torch.float32))
    time.sleep(FOREVER)


def silent(rank):
    """Nobody hangs: Gloo adds the bytes of whatever comes, and only the result is wrong."""
    dist.all_reduce(torch.ones(4, dtype=torch.int32 if rank == CULPRIT else torch.float32))
    steps(1)


def unending(rank):
    """As silent(), later, and the job goes on until somebody ends it."""
    steps(500)
    dist.all_reduce(torch.ones(4, dtype=torch.int32 if rank == CULPRIT else torch.float32))
    while True:
        steps(1)


def anew(rank):
    """Groups of the same names and ranks as before, in which the calls of each number are others."""
    for size in range(1, 20):
        dist.all_reduce(torch.ones(size))
        part = dist.new_group()
        dist.all_reduce(torch.ones(size), group=part)
        dist.destroy_process_group(part)
        dist.destroy_process_group()
        dist.init_process_group("lockstep")


def messages(rank):
    """As silent(): Gloo writes the bytes that come to the begin of the tensor."""
    if rank == CULPRIT:
        dist.recv(torch.ones(8), src=0)
    else:
        dist.send(torch.ones(4), dst=CULPRIT)
    time.sleep(FOREVER)


def parts(rank):
    """The same of an all_to_all."""
    sent = [1, 2]
    expected = [1, 1] if rank == 0 else [3, 2]
    dist.all_to_all_single(torch.ones(sum(expected), 4), torch.ones(3, 4), expected, sent)
    time.sleep(FOREVER)


def unsent(rank):
    """Nobody sends what rank 0 waits for."""
    if rank == 0:
        dist.recv(torch.ones(4), src=CULPRIT)
    time.sleep(FOREVER)


def order(rank):
    first, second = dist.new_group(), dist.new_group()
    for group in (second, first) if rank == CULPRIT else (first, second):
        dist.all_reduce(torch.ones(4), group=group)


def returned(rank):
    if rank == CULPRIT:
        return
    steps(1)


def threw(rank):
    if rank == CULPRIT:
        raise ValueError("no such sample: 17")
    steps(1)


def both_threw(rank):
    """Neither is the consequence of the other."""
    store = dist.distributed_c10d._get_default_store()
    if rank == CULPRIT:
        store.set("the first has failed", "")
        raise ValueError("the first")
    if rank + CULPRIT == dist.get_world_size() - 1:
        store.wait(["the first has failed"])
        time.sleep(3)  # ends are told in whole seconds
        raise ValueError("the second")
    time.sleep(FOREVER)


def killed(rank):
    if rank == CULPRIT:
        os.kill(os.getpid(), signal.SIGKILL)
    steps(1)


def restarted(rank):
    if rank == CULPRIT and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("the first time")
    steps(1)


def exited(rank):
    if rank == CULPRIT:
        os._exit(3)
    steps(1)


def vanished(rank):
    if rank == CULPRIT:
        os._exit(0)
    steps(1)


def left(rank):
    if rank == CULPRIT:
        os._exit(3)
    time.sleep(FOREVER)


def sleeps(rank):
    if rank == CULPRIT:
        time.sleep(FOREVER)  # the culprit
    steps(1)


def spins(rank):
    if rank == CULPRIT:
        while True: pass
    steps(1)


def locked(rank):
    if rank == CULPRIT:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()  # again
    steps(1)


class Data(torch.utils.data.Dataset):
    def __init__(self, slow):
        self.slow = slow

    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(FOREVER if self.slow else 0)
        return index


def loader(rank):
    if rank == CULPRIT:
        for _ in torch.utils.data.DataLoader(Data(slow=True), num_workers=1):
            pass
    steps(1)


def loads():
    for _ in torch.utils.data.DataLoader(Data(slow=False), num_workers=2, multiprocessing_context="fork"):
        steps(1)


def straggler(rank):
    for _ in range(30):
        if rank == CULPRIT:
            time.sleep(0.02)
        steps(1)


def healthy(rank):
    steps(20)
    if rank == CULPRIT:
        time.sleep(0.3)
    steps(4)
    loads()


if "HANGS_BACKEND" in os.environ:
    import lockstep  # noqa: F401
dist.init_process_group(os.environ.get("HANGS_BACKEND", "gloo"))
steps(3)
if os.environ.get("HANGS_SAYS") == "pid":
    sys.stdout.write(f"{os.getpid()}\n")  # in one piece
globals()[CASE](dist.get_rank())
if CASE in ("healthy", "silent", "straggler", "restarted", "anew"):
    if dist.get_rank() == 0:
        print("rank 0 is done")
    dist.destroy_process_group()
