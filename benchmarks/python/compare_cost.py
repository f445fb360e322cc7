#!/usr/bin/env python3
"""What recording costs: a step of a transformer of about 10 million parameters, with and without the recorder of
`lockstep compare`, three times in turns, so that both meet the same load.

    python benchmarks/python/compare_cost.py LOCKSTEP     with the Python that has torch
"""
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = 12
WIDTH, BLOCKS, LENGTH, BATCH, VOCABULARY = 320, 8, 64, 8, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        h = self.ln1(x)
        q, k, v = (each(h).unflatten(-1, (8, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


def train():
    """Prints the median processor time of a step, which other programs change less than the time that passes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, VOCABULARY))
    optimizer = torch.optim.AdamW(model.parameters())
    times = []
    for _ in range(STEPS):
        tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
        began = time.process_time()
        optimizer.zero_grad()
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        times.append(time.process_time() - began)
    print(statistics.median(times[2:]), sum(each.numel() for each in model.parameters()), sum(1 for _ in model.modules()))


def main(lockstep):
    command = [sys.executable, __file__, "train"]
    ratios = []
    for _ in range(3):
        plain, parameters, modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([lockstep, "compare", "--candidate", shlex.join(command), "--steps", str(STEPS + 1), "--keep",
                            folder], check=True)
            run = pathlib.Path(folder, "candidate")
            recorded = run.joinpath("output.log").read_text().split()[0]
            size = run.joinpath("rank-0.rec").stat().st_size / STEPS
        ratios.append(float(recorded) / float(plain))
        print(f"{int(parameters) / 1e6:.1f} million parameters, {modules} modules: {1e3 * float(plain):.0f} ms a step, "
              f"{1e3 * float(recorded):.0f} ms recorded: {ratios[-1]:.3f} x; {size / 1e3:.0f} kB a step", flush=True)
    print(f"median {statistics.median(ratios):.3f} x (goal 1.15)")


if __name__ == "__main__":
    train() if sys.argv[1] == "train" else main(sys.argv[1])
