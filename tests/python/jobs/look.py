"""Jobs of look_test.py, which nobody watches: look.py CASE. Each rank prints READY and its process id before its case
begins. Rank 5 is the one that is not where the others are."""

import os
import pickle
import sys
import threading
import time

import torch
import torch.distributed as dist

CASE = sys.argv[1]
ODD = min(5, int(os.environ["WORLD_SIZE"]) - 1)


def train_step():
    dist.all_reduce(torch.ones(4, 3))  # of a step


def lock(rank):
    if rank == ODD:
        guard = threading.Lock()
        guard.acquire()
        guard.acquire()  # nobody lets go of it
    train_step()


def skipped(rank):
    if rank != ODD:
        train_step()
    dist.barrier()  # behind the step


class Blocked(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        threading.Event().wait()  # a worker of the loader
        return index


def loader(rank):
    if rank == ODD:
        for _ in torch.utils.data.DataLoader(Blocked(), num_workers=1, multiprocessing_context="fork"):  # no batch
            pass
    train_step()


def gone(rank):
    if rank == ODD:
        os._exit(3)
    dist.new_group()  # without rank 5


def loop(rank):
    count = 0
    while rank == ODD:
        count += 1  # without an end
    train_step()


def served(rank):
    """Under a server of torch, which has the Flight Recorder."""
    from torch.distributed.elastic.control_plane import worker_main
    os.environ["TORCH_WORKER_SERVER_SOCKET"] = os.path.join(sys.argv[2], f"socket-{rank}")
    with worker_main():
        lock(rank)


def piped(rank, waits=lock):
    """With what a rank of NCCL has: a pipe that triggers a dump of the Flight Recorder."""
    stem = os.path.join(sys.argv[2], "rank-")
    os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] = os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = stem
    os.mkfifo(f"{stem}{rank}.pipe")

    def dump():
        while True:
            with open(f"{stem}{rank}.pipe", "rb") as pipe:
                pipe.read(1)
            with open(f"{stem}{rank}", "wb") as file:
                file.write(with_times(torch._C._distributed_c10d._dump_fr_trace()))
    threading.Thread(target=dump, daemon=True).start()
    waits(rank)


def with_times(dump):
    """As NCCL has them: Gloo does not say when a collective was called."""
    found = pickle.loads(dump)
    for each in found["entries"]:
        each["time_created_ns"] = each["time_created_ns"] or READY_NS
    return pickle.dumps(found, protocol=2)


def spinning(rank):
    """Those that wait do so as in NCCL: they look whether the device is there yet, without a pause."""
    def spin(rank):
        if rank == ODD:
            lock(rank)
        work = dist.all_reduce(torch.ones(4, 3), async_op=True)  # of a step
        while not work.is_completed():
            pass
    piped(rank, spin)


def stopped(rank):
    if rank == ODD:
        os.kill(os.getpid(), 19)
    train_step()


def healthy(rank):
    while True:
        train_step()


def bits(rank):
    """Trains for some steps, waits until its input is closed, so that looks find the job however slow they are, and prints
    the parameters."""
    torch.manual_seed(1)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    batches = torch.Generator().manual_seed(rank)
    end = int(sys.argv[2])
    for step in range(end):
        optimizer.zero_grad()
        net(torch.randn(4, 8, generator=batches)).square().mean().backward()
        optimizer.step()
        if step % 50 == 0 and rank == 0:
            print("STEP", step, flush=True)
    sys.stdin.read()
    text = b"".join(each.detach().numpy().tobytes() for each in net.parameters()).hex()
    sys.stdout.write(f"PARAMETERS {rank} {text}\n")


dist.init_process_group("gloo")
for _ in range(3):
    train_step()
READY_NS = time.time_ns()
sys.stdout.write(f"READY {os.getpid()}\n")
sys.stdout.flush()
globals()[CASE](dist.get_rank())
