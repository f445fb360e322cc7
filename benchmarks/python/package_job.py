"""One job of package_cost.py, under torchrun: what inspectors cost beside the same question in plain torch, and what
watches add to a training step. Rank 0 prints records (benchmarks/harness/records.py)."""
import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import lockstep

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "ddp"))
from python_step_time import EncoderLayer  # noqa: E402


def all_equal(model):
    """What people write: every parameter of every rank on this rank, and allclose."""
    equal = True
    for parameter in model.parameters():
        copies = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(copies, parameter.detach())
        equal = equal and all(torch.allclose(copies[0], each) for each in copies[1:])
    return equal


def read(model):
    """What no comparison can be faster than: every parameter of this rank, read once."""
    return sum(parameter.sum().item() for parameter in model.parameters())


def slowest(function):
    """Milliseconds of the slowest rank; all ranks begin together."""
    dist.barrier()
    begin = time.perf_counter()
    function()
    elapsed = torch.tensor([1e3 * (time.perf_counter() - begin)])
    dist.all_reduce(elapsed, dist.ReduceOp.MAX)
    return elapsed.item()


def report(subject, what, unit, values):
    if dist.get_rank() == 0:
        print(json.dumps({"subject": subject, "what": what, "ranks": dist.get_world_size(), "unit": unit,
                          "values": [round(each, 4) for each in values]}), flush=True)


def verify_model(repetitions):
    """25 M parameters in 50 tensors, and what bounds it: reading the memory, and the exchange (72 parameters)."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(1000, 1000) for _ in range(25)))
    assert lockstep.verify(model) and all_equal(model)
    few = torch.nn.Linear(8, 8)
    ways = {("lockstep", "verify.25M"): lambda: lockstep.verify(model),
            ("torch", "verify.25M"): lambda: all_equal(model),
            ("torch", "read.25M"): lambda: read(model),
            ("lockstep", "verify.72"): lambda: lockstep.verify(few)}
    times = {each: [] for each in ways}
    for _ in range(repetitions):
        for name, way in ways.items():
            times[name].append(slowest(way))
    for (subject, what), values in times.items():
        report(subject, what, "ms", values)


def watched_steps(rounds, steps):
    """A step of a transformer (6 layers of 256, sequences of 128) with watches and without, block by block."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(EncoderLayer(256, 8) for _ in range(6)))
    wrapped = DDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(8, 128, 256)

    def step():
        optimizer.zero_grad()
        wrapped(batch).square().mean().backward()
        optimizer.step()

    def block():
        return slowest(lambda: [step() for _ in range(steps)]) / steps

    block()
    ratios = {"watch every 10 steps": [], "nan_watch": []}
    plain = []
    for _ in range(rounds):
        for name, ratio in ratios.items():
            before = block()
            with lockstep.watch(wrapped, optimizer, every=10) if name.startswith("watch") else \
                    lockstep.nan_watch(wrapped, optimizer):
                watched = block()
            after = block()
            plain += [before, after]
            ratio.append(watched / statistics.mean([before, after]))
    report("torch", "step of a transformer", "ms", plain)
    for name, ratio in ratios.items():
        report("lockstep", name, "x", ratio)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    verify_model(repetitions=2 * arguments.rounds)
    watched_steps(arguments.rounds, arguments.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
