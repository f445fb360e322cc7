"""A training loop that stops. Arguments: folder, mode (see train). Writes rank-R.json with what the loop has computed."""

import importlib
import json
import os
import pathlib
import sys
import time

import lockstep
import torch
import torch.distributed as dist

FOLDER = pathlib.Path(sys.argv[1])
MODE = sys.argv[2] if len(sys.argv) > 2 else "every"
STEPPING = ("steps", "short steps", "half counts")  # rank 1 of the last does not call the package
seen = []


def ask_for_names(rank):
    """Rank 0 reads the terminal, also while rank 1 is stopped."""
    name = input("name? ") if rank == 0 else ""
    lockstep.breakpoint()
    dist.barrier()
    return name + " " + input("family? ") if rank == 0 else 0


def hang(rank):
    """Rank 1 does not come to the collective."""
    lockstep.breakpoint(False)  # from here on a shell knows of the rank
    try:
        dist.barrier()  # so that it knows of both
        if rank == 0:
            print("hangs", flush=True)
            dist.all_reduce(torch.ones(2))
        while not (FOLDER / "attached").exists():
            time.sleep(0.02)
        dist.all_reduce(torch.ones(2))
    except RuntimeError as error:
        dist.destroy_process_group()
        dist.init_process_group("gloo", init_method=f"file://{FOLDER}/again", rank=rank, world_size=2)
        return str(error)
    return "no error"


def late(rank):
    """Before each collective rank 1 sleeps, or each rank in its turn."""
    lockstep.breakpoint(False)  # from here on a shell knows of the rank
    for step in range(30):
        if rank == 1 if MODE == "late" else step % 2 == rank:
            time.sleep(0.02)
        dist.all_reduce(torch.ones(2))  # late
    print("has trained", flush=True)
    while not (FOLDER / "attached").exists():
        time.sleep(0.02)
    return 0


def train(rank):
    if MODE in ("late", "late in turn"):
        return late(rank)
    if MODE == "reads":
        return ask_for_names(rank)
    if MODE == "hang":
        return hang(rank)
    model = torch.nn.Linear(4, 2)
    total = 0
    keep, step = True, 0
    while MODE in STEPPING and keep:
        step += 1
        dist.all_reduce(torch.ones(2))
        if MODE == "half counts" and rank == 1:
            keep = not (FOLDER / "attached").exists()
            dist.broadcast(torch.tensor([keep]), 1)
            continue
        lockstep.step()
        if MODE == "steps":
            time.sleep(0.01)
        elif MODE == "half counts":
            other = torch.tensor([True])
            dist.broadcast(other, 1)
            keep = bool(other)
        if step == 3 and rank == 0:
            print("trains", flush=True)
        total = step
    if MODE in ("every", "once"):  # the prompt waits for all ranks for a moment, in which they have to come
        importlib.import_module("lockstep.prompt._stop")  # as the first breakpoint does
        dist.barrier()
    for step in range(0 if MODE in STEPPING else 3):
        factor = 10 * (rank + 1)
        if MODE == "every":
            lockstep.breakpoint()
        elif MODE == "one rank":
            lockstep.breakpoint(rank == 1 and step == 1)  # rank 0 passes it
            if step == 1 and rank == 0:  # until rank 1 has been attached to
                print("rank 0 has passed it", flush=True)
                while not (FOLDER / "attached").exists():
                    time.sleep(0.02)
                lockstep.breakpoint()
        elif MODE == "builtin" and step == 1:
            breakpoint()
        elif MODE == "once" and step == 1:
            lockstep.breakpoint()
        total += factor
    del model
    return total


def name_of_thread(number):
    return pathlib.Path(f"/proc/self/task/{number}/comm").read_text().strip()


def main():
    dist.init_process_group(os.environ.get("PROMPT_BACKEND", "gloo"))
    rank = dist.get_rank()
    try:
        total = train(rank)
    except KeyboardInterrupt:
        total = "interrupted"
    tensor = torch.ones(1)
    dist.all_reduce(tensor)  # the ranks are still in step
    dist.destroy_process_group()
    left = [name for name in map(name_of_thread, os.listdir("/proc/self/task")) if "gloo" in name]
    (FOLDER / f"rank-{rank}.json").write_text(json.dumps({
        "total": total, "seen": seen, "ranks": tensor.item(), "threads of groups": left,
        "compiler of torch": "torch._inductor" in sys.modules}))


main()
