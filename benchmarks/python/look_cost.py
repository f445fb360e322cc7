#!/usr/bin/env python3
"""How long `lockstep look` takes on a job of 8 ranks that hangs, beside `py-spy dump` of each rank, in turns, and how many
lines a person reads. The job is that of tests/python/look_test.py: seven ranks wait in all_reduce, one for a lock.

    PYTHON benchmarks/python/look_cost.py LOCKSTEP [--rounds 10]

PYTHON: one that has torch, and py-spy beside it. Prints a row of docs/performance.md.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RANKS = 8


def timed(*commands):
    """Seconds, and the lines that the commands print, one after the other."""
    begin = time.perf_counter()
    lines = sum(len(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines())
                for command in commands)
    return time.perf_counter() - begin, lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    tests = ROOT / "tests" / "python"
    py_spy = str(pathlib.Path(sys.executable).parent / "py-spy")
    job = subprocess.Popen([sys.executable, str(tests / "launch.py"), str(RANKS), str(tests / "jobs" / "look.py"), "lock"],
                           env=dict(os.environ, OMP_NUM_THREADS="1", LAUNCH_GOES_ON="1", GLOO_SOCKET_IFNAME="lo"),
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        pids = [line.split()[1] for line in (job.stdout.readline() for _ in range(RANKS))]
        look = [given.lockstep, "look", str(job.pid), "--hang-timeout", "1"]
        while subprocess.run(look, stdout=subprocess.DEVNULL, check=False).returncode == 0:
            pass  # the ranks come to their waits
        looks, dumps = [], []
        for _ in range(given.rounds):
            time.sleep(1)  # a hang that a person comes to has lasted longer than what the others' stops have left
            looks.append(timed(look))
            dumps.append(timed(*([py_spy, "dump", "--pid", pid] for pid in pids)))
        own, other = (statistics.median(seconds for seconds, _ in each) for each in (looks, dumps))
        print(f"| `lockstep look` at {RANKS} ranks, over {RANKS} × `py-spy dump` | - | {own / other:.2f} × ({own:.2f} and "
              f"{other:.2f} s); {looks[-1][1]} lines and a verdict, beside {dumps[-1][1]} lines; load "
              f"{os.getloadavg()[0]:.1f} |")
    finally:
        job.terminate()
        job.communicate()


if __name__ == "__main__":
    main()
