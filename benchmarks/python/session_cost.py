"""What a session of Python ranks costs its user, in a terminal: from the command to the first value, and from ENTER to
the value of `k + 1`. Prints a line of JSON.

    PYTHON benchmarks/python/session_cost.py LOCKSTEP [--ranks N] [--cells N] [--python PATH]
    PYTHON benchmarks/python/session_cost.py LOCKSTEP --peers VENV [--ranks 2,4,8] [--rounds 3] [--cells 30]

With --peers: a table of ratios. In turns, round by round, with nbdistributed, jupyter-distributed, ipyparallel and
ipykernel, also the kernel through jupyter_client and `%load_ext lockstep`. VENV has torch and these (tools/bench says how
to make one), and sees the package `lockstep` (installed, or by PYTHONPATH=build/release/python).
"""

import argparse
import collections
import json
import os
import pathlib
import pty
import re
import select
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Prompt:
    def __init__(self, command):
        self.seen = ""
        self.begun = time.perf_counter()
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            os.environ.update(TERM="xterm", NO_COLOR="1", COLUMNS="120", LINES="50")
            os.execv(command[0], command)

    def type(self, text):
        os.write(self.terminal, text.encode())

    def wait_for(self, pattern):
        """The time at which it has come up, since the last one."""
        while not (found := re.search(pattern, self.seen)):
            if not select.select([self.terminal], [], [], 120)[0]:
                sys.exit(f"{pattern} did not come up: {self.seen[-2000:]}")
            self.seen += os.read(self.terminal, 1 << 16).decode(errors="replace")
        now = time.perf_counter()
        self.seen = self.seen[found.end():]
        return now

    def close(self):
        self.type("\x04")
        begun = time.perf_counter()
        try:
            while os.read(self.terminal, 1 << 16):
                pass
        except OSError:  # the other side has closed it
            pass
        os.waitpid(self.process, 0)
        return time.perf_counter() - begun


def times_of(command, cells):
    """Of a session in a terminal: seconds to the first value, milliseconds of cells, seconds of its end."""
    prompt = Prompt(command)
    prompt.wait_for(r"In \[1\]")
    prompt.type("k = 1000\r")
    prompt.wait_for(r"In \[2\]")
    prompt.type("k + 1\r")
    start_s = prompt.wait_for(r"= 1001") - prompt.begun
    prompt.wait_for(r"In \[3\]")
    times = []
    for number in range(cells):
        text = f"k + {number + 2}"
        prompt.type(text)
        prompt.wait_for(re.escape(text[-1]))
        begun = time.perf_counter()
        prompt.type("\r")
        times.append(1e3 * (prompt.wait_for(f"= {1000 + number + 2}") - begun))
        prompt.wait_for(rf"In \[{number + 4}\]")
    return start_s, times, prompt.close()


def driven(python, name, ranks, cells, *options):
    """The records of a driver of benchmarks/peers: (subject, what) → values."""
    done = subprocess.run([python, ROOT / "benchmarks" / "peers" / f"drive_{name}.py", "--ranks", str(ranks), "--cells",
                           str(cells), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    if done.returncode != 0 or not records:
        raise RuntimeError(f"drive_{name}.py: {done.stderr[-2000:]}")
    return {(each["subject"], each["what"]): each["values"] for each in records}


def in_turns(given, ranks):
    """Values by (subject, what), of all rounds."""
    values = collections.defaultdict(list)
    peers = str(pathlib.Path(given.peers) / "bin" / "python")
    drivers = [("nbdistributed", ()), ("jupyter_distributed", ()), ("ipyparallel", ()), ("extension", ()),
               ("kernel", ("--lockstep", given.lockstep, "--python", given.python))]
    for _ in range(given.rounds):
        start_s, cells, _ = times_of([given.lockstep, f"--python={given.python}", "-n", str(ranks)], given.cells)
        values["terminal", "start"].append(start_s)
        values["terminal", "cell.value"] += cells
        for name, options in drivers:
            for key, found in driven(peers, name, ranks, given.cells, *options).items():
                values[key] += found
    return values


# Subject and what, beside what, and the most that the ratio may be.
GOALS = ((("terminal", "start"), ("nbdistributed", "start"), 0.5),
         (("terminal", "start"), ("jupyter-distributed", "start"), 0.6),
         (("terminal", "cell.value"), ("ipyparallel", "cell.value"), 0.15),
         (("terminal", "cell.value"), ("nbdistributed", "cell.value"), 0.02),
         (("lockstep", "kernel.repeated"), ("ipykernel", "kernel.value"), 1.2),
         (("load_ext", "cell.value"), ("nbdistributed", "cell.value"), 0.1))


def compare(given):
    print(f"| ranks | what | goal | ratio of medians | medians (load {os.getloadavg()[0]:.1f}) |\n|---|---|---|---|---|")
    for ranks in [int(each) for each in given.ranks.split(",")]:
        middle = {key: statistics.median(each) for key, each in in_turns(given, ranks).items()}
        for own, other, goal in GOALS:
            ratio = middle[own] / middle[other]
            unit = "s" if own[1] == "start" else "ms"
            print(f"| {ranks} | {own[0]} {own[1]} over {other[0]} | ≤ {goal} | {ratio:.3f} | "
                  f"{middle[own]:.3g} and {middle[other]:.3g} {unit} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--peers")
    given = parser.parse_args()
    if given.peers:
        return compare(given)
    start_s, times, stop_s = times_of([given.lockstep, f"--python={given.python}", "-n", given.ranks], given.cells)
    times.sort()
    print(json.dumps({"ranks": int(given.ranks), "start_to_first_value_s": round(start_s, 3), "cells": given.cells,
                      "cell_ms": {"min": round(times[0], 2), "p50": round(statistics.median(times), 2),
                                  "p95": round(times[int(0.95 * len(times))], 2)}, "stop_s": round(stop_s, 3)}))


if __name__ == "__main__":
    main()
