"""A training loop that stops. Arguments: folder, mode (see train). Writes rank-R.json with what the loop has computed."""

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
seen = []


def train(rank):
    model = torch.nn.Linear(4, 2)
    total = 0
    keep, step = True, 0
    while MODE == "steps" and keep:
        step += 1
        dist.all_reduce(torch.ones(2))
        lockstep.step()
        time.sleep(0.01)
        if step == 3 and rank == 0:
            print("trains", flush=True)
        total = step
    for step in range(0 if MODE == "steps" else 3):
        factor = 10 * (rank + 1)
        if MODE == "every":
            lockstep.breakpoint()
        elif MODE == "one rank":
            lockstep.breakpoint(rank == 1 and step == 1)  # rank 0 passes it
            if step == 1 and rank == 0:  # until rank 1 has been attached to
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


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    try:
        total = train(rank)
    except KeyboardInterrupt:
        total = "interrupted"
    tensor = torch.ones(1)
    dist.all_reduce(tensor)  # the ranks are still in step
    threads = len(os.listdir("/proc/self/task"))
    (FOLDER / f"rank-{rank}.json").write_text(json.dumps({"total": total, "seen": seen, "ranks": tensor.item(),
                                                          "threads": threads}))
    dist.destroy_process_group()


main()
