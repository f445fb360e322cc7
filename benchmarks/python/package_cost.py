#!/usr/bin/env python3
"""Measures what the Python package costs, beside plain torch in the same run, and prints the ratios beside the goals.

    PYTHON benchmarks/python/package_cost.py [--ranks 2,4] [--rounds 5] [--json FILE]

PYTHON: one that has torch, and the package (installed, or by PYTHONPATH=build/release/python).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
IMPORT = "import time, torch; t = time.perf_counter(); import lockstep; print(1e3 * (time.perf_counter() - t))"


def import_times(rounds):
    """Milliseconds of `import lockstep` after `import torch`, each in a process of its own."""
    return [float(subprocess.run([sys.executable, "-c", IMPORT], check=True, stdout=subprocess.PIPE, text=True).stdout)
            for _ in range(rounds)]


def job(ranks, rounds):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}",
               str(HERE / "package_job.py"), "--rounds", str(rounds)]
    environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=1200)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]


def median(records, subject, what, ranks):
    return next(statistics.median(each["values"]) for each in records
                if (each["subject"], each["what"], each["ranks"]) == (subject, what, ranks))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="a file for the records, one a line")
    arguments = parser.parse_args()
    records = [{"subject": "lockstep", "what": "import", "ranks": 1, "unit": "ms", "values": import_times(arguments.rounds)}]
    sizes = [int(each) for each in arguments.ranks.split(",")]
    for ranks in sizes:
        records += job(ranks, arguments.rounds)
    if arguments.json:
        pathlib.Path(arguments.json).write_text("".join(json.dumps(each) + "\n" for each in records))
    print(f"| what | ranks | goal | measured (median; lowest to highest of {arguments.rounds} rounds) |\n|---|---|---|---|")
    times = records[0]["values"]
    print(f"| import lockstep, after torch | 1 | ≤ 50 ms | {statistics.median(times):.1f} ms; {min(times):.1f} to {max(times):.1f} |")
    for ranks in sizes:
        plain, ours = (median(records, subject, "verify.25M", ranks) for subject in ("torch", "lockstep"))
        print(f"| verify of 25 M parameters beside all_gather + allclose | {ranks} | ≥ 50 × | {plain / ours:.0f} × "
              f"({ours:.1f} and {plain:.0f} ms) |")
        roof = median(records, "torch", "read.25M", ranks)
        print(f"| the same, by `sum()` of each parameter alone | {ranks} | roof | {plain / roof:.0f} × ({roof:.1f} ms) |")
        print(f"| verify of 72 parameters: the exchange | {ranks} | | "
              f"{median(records, 'lockstep', 'verify.72', ranks):.1f} ms |")
        for what in ("watch every 10 steps", "nan_watch"):
            values = next(each["values"] for each in records if each["what"] == what and each["ranks"] == ranks)
            print(f"| a training step of a transformer with {what} | {ranks} | ≤ 1.01 × | {statistics.median(values):.3f} ×; "
                  f"{min(values):.3f} to {max(values):.3f} |")


if __name__ == "__main__":
    main()
