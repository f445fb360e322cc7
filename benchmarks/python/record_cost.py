#!/usr/bin/env python3
"""What recording costs for `lockstep replay`: a step of DDP with and without `--record 4`, of a session in C++ and of a Python
job, three times in turns, so that both meet the same load.

    python benchmarks/python/record_cost.py LOCKSTEP     with the Python that has torch and the package
"""
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

RANKS, KEPT, STEPS = 2, 4, 90
FIRST = 2 + 2 * KEPT  # until then the files grow

CELLS = f"""// %% DDP
set_seed(0);
torch::nn::Sequential net(torch::nn::Linear(512, 1024), torch::nn::ReLU(), torch::nn::Linear(1024, 1024), torch::nn::ReLU(),
                          torch::nn::Linear(1024, 288));
auto model = ddp::DistributedDataParallel(net);
torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3));
#include <ctime>
for (int i = 0; i < {STEPS}; ++i) {{
  timespec begin, end;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  if (auto step = ddp::step(model, optimizer)) {{
    optimizer.zero_grad();
    torch::mse_loss(model(torch::randn({{64, 512}})), torch::randn({{64, 288}})).backward();
    optimizer.step();
  }}
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  if (rank == 0) std::printf("step %d %.9f\\n", i, double(end.tv_sec - begin.tv_sec) + 1e-9 * double(end.tv_nsec - begin.tv_nsec));
}}
"""


def train():
    """As the cells."""
    import torch
    import torch.distributed as dist
    import lockstep

    torch.set_num_threads(1)
    dist.init_process_group("lockstep")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU(),
                              torch.nn.Linear(1024, 288))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(STEPS):
        began = time.process_time()
        with lockstep.step(model, optimizer):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(torch.randn(64, 512)), torch.randn(64, 288)).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print("step", number, time.process_time() - began, flush=True)
    dist.destroy_process_group()


def times(command):
    """Seconds of processor time of the steps of rank 0."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True)
    return [float(each) for each in re.findall(r"step \d+ ([0-9.e-]+)", done.stdout)][FIRST:]


def main(lockstep):
    with tempfile.TemporaryDirectory() as folder:
        cells = pathlib.Path(folder, "cells.cpp")
        cells.write_text(CELLS)
        recording = pathlib.Path(folder, "recording")
        record = ["--record", str(KEPT), "--recording", str(recording)]
        job = ["--", sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={RANKS}", __file__, "train"]
        for name, begin, end in (("a session in C++", [lockstep, "run", "-n", str(RANKS)], [str(cells)]),
                                 ("a Python job", [lockstep, "run"], job)):
            medians, means = [], []
            for _ in range(3):
                plain, recorded = times([*begin, *end]), times([*begin, *record, *end])
                medians.append(statistics.median(recorded) / statistics.median(plain))
                means.append(statistics.mean(recorded) / statistics.mean(plain))
            print(f"{name}: a step with recording takes of the processor time of one without: "
                  f"median step {', '.join(f'{each:.2f}' for each in medians)}; mean {', '.join(f'{each:.2f}' for each in means)}; "
                  f"file {recording.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    else:
        main(*sys.argv[1:])
