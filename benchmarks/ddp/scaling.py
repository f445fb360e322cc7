#!/usr/bin/env python3
"""Strong and weak scaling of a training step over 1, 2 and 4 ranks, each pinned to a core, as a table and a plot in text.

    benchmarks/ddp/scaling.py --program build/release/bin/lockstep-bench-ddp [--models mlp,transformer] [--rounds 3] [--steps 20]

Strong: the batch of all ranks together stays the same; efficiency T1 / (N * TN). Weak: the batch of each rank stays the same;
efficiency T1 / TN. Ranks beyond the machine's cores share them: then the ideal is no longer 1, but cores / N, which is printed beside.
"""
import argparse
import os
import statistics

from compare import run

RANKS = (1, 2, 4)
BATCH = {"many": 64, "mlp": 128, "conv": 8, "transformer": 4}  # of all ranks together, or of each
WIDTH = 40


def step_ms(a, model, ranks, batch):
    extra = ["--model", model, "--steps", str(a.steps), "--variants", "ddp", "--batch", str(batch)]
    return run([a.program], ranks, extra)["variants"]["ddp"]["ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--models", default="mlp,transformer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    a = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    rows = []
    for model in a.models.split(","):
        for kind in ("strong", "weak"):
            batch = {n: BATCH[model] // n if kind == "strong" else BATCH[model] for n in RANKS}
            rounds = [{n: step_ms(a, model, n, batch[n]) for n in RANKS} for _ in range(a.rounds)]
            for n in RANKS:
                scale = n if kind == "strong" else 1
                efficiency = statistics.median(r[1] / (scale * r[n]) for r in rounds)
                rows.append((model, kind, n, batch[n], statistics.median(r[n] for r in rounds), efficiency, min(1, cores / n)))
    print(f"{cores} cores; medians of {a.rounds} rounds")
    print("| model | scaling | ranks | batch of a rank | step | efficiency | ideal here |")
    print("|---|---|---|---|---|---|---|")
    for model, kind, n, batch, ms, efficiency, ideal in rows:
        print(f"| {model} | {kind} | {n} | {batch} | {ms:.1f} ms | {efficiency:.2f} | {ideal:.2f} |")
    print("\nefficiency █, ideal on these cores ▏")
    for model, kind, n, _, _, efficiency, ideal in rows:
        bar = list("█" * round(WIDTH * min(efficiency, 1.2)))
        bar += " " * (round(WIDTH * ideal) + 1 - len(bar))
        bar[round(WIDTH * ideal)] = "▏"
        print(f"{model:>12} {kind:<6} {n} {''.join(bar)} {efficiency:.2f}")


if __name__ == "__main__":
    main()
