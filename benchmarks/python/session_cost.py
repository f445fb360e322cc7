"""What a session of Python ranks costs its user, in a terminal: from the command to the first value, and from ENTER to
the value of `k + 1`. Prints a line of JSON.

python3 benchmarks/python/session_cost.py LOCKSTEP [--ranks N] [--cells N] [--python PATH]
"""

import argparse
import json
import os
import pty
import re
import select
import statistics
import sys
import time


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    prompt = Prompt([given.lockstep, f"--python={given.python}", "-n", str(given.ranks)])
    prompt.wait_for(r"In \[1\]")
    prompt.type("k = 1000\r")
    prompt.wait_for(r"In \[2\]")
    prompt.type("k + 1\r")
    start_s = prompt.wait_for(r"= 1001") - prompt.begun
    prompt.wait_for(r"In \[3\]")
    times = []
    for number in range(given.cells):
        text = f"k + {number + 2}"
        prompt.type(text)
        prompt.wait_for(re.escape(text[-1]))
        begun = time.perf_counter()
        prompt.type("\r")
        times.append(prompt.wait_for(f"= {1000 + number + 2}") - begun)
        prompt.wait_for(rf"In \[{number + 4}\]")
    stop_s = prompt.close()
    times.sort()
    print(json.dumps({"ranks": given.ranks, "start_to_first_value_s": round(start_s, 3), "cells": given.cells,
                      "cell_ms": {"min": round(times[0] * 1e3, 2), "p50": round(statistics.median(times) * 1e3, 2),
                                  "p95": round(times[int(0.95 * len(times))] * 1e3, 2)}, "stop_s": round(stop_s, 3)}))


if __name__ == "__main__":
    main()
