#!/usr/bin/env python3
"""Runs a share of the tests of a GoogleTest program in one process, because LibTorch takes 0.2 s to load in each.

    run_share.py NAME PREFIX SHARE/SHARES PROGRAM [--filter FILTER] [--limit SECONDS]

NAME is the test's name in ctest; PREFIX stands before the names of the single tests. A test that ends the process, or
that runs for longer than the limit (300 s), is named and has failed, and the tests after it run in a further process.
A process that ends with a failure of none of its tests fails the share, which then runs again as a whole.

With TEST_RESULTS, a folder, the file NAME there gets a line for each test: its result (passed, skipped, failed or
again), its seconds, and its name. A share that has such a file runs for the second time: the tests that have neither
passed nor been skipped run again, each in a process of its own, and those that pass then are "again".
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time

RESULTS = {"OK": "passed", "SKIPPED": "skipped", "FAILED": "failed"}
# "[       OK ] Suite.Name (12 ms)", "[  FAILED  ] Suite/0.Name, where TypeParam = int (12 ms)"; what a test has printed
# may stand before it in the line.
BEGIN = re.compile(r"\[ RUN      \] (\S+)$")
END = re.compile(r"\[ +(OK|SKIPPED|FAILED) +\] (\S+?)(?:, where .*)? \(\d+ ms\)$")


class Share:
    def __init__(self, options):
        self.program, self.filter, self.prefix = options.program, options.filter, options.prefix
        self.limit = options.limit
        self.share, self.shares = map(int, options.share.split("/"))
        folder = os.environ.pop("TEST_RESULTS", None)
        self.file = folder and os.path.join(folder, options.name)
        self.results, self.seconds = {}, {}
        self.unexplained = None  # how a process ended that has failed, though none of its tests has

    def run(self, tests):
        """Runs tests of the program. Those that do not end have failed."""
        failures = self.failures()
        process = subprocess.Popen([self.program, f"--gtest_filter={':'.join(tests)}"], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, errors="replace")
        running, begin, late = None, 0.0, threading.Timer(self.limit, process.kill)
        late.start()
        for line in process.stdout:
            print(line, end="", flush=True)
            # A test may start this program again, for tests of its own.
            if (found := BEGIN.search(line)) and found[1] in tests:
                running, begin = found[1], time.monotonic()
                late.cancel()
                late = threading.Timer(self.limit, process.send_signal, [signal.SIGABRT])
                late.start()
            elif (found := END.search(line)) and found[2] == running:
                self.end(running, RESULTS[found[1]], begin)
                running = None
        status = process.wait()
        late.cancel()
        end = f"signal {-status}" if status < 0 else f"exit code {status}"
        if running:
            self.end(running, "failed", begin)
            print(f"{self.prefix}{running} did not end: the process ended with {end} after "
                  f"{self.seconds[running]:.0f} s (the limit is {self.limit} s)", flush=True)
        if status != 0 and self.failures() == failures:
            self.unexplained = end

    def failures(self):
        return list(self.results.values()).count("failed")

    def end(self, test, result, begin):
        self.results[test], self.seconds[test] = result, time.monotonic() - begin

    def tests(self):
        """The names of the share's tests."""
        listed = subprocess.run([self.program, "--gtest_list_tests", f"--gtest_filter={self.filter}"], check=True,
                                stdout=subprocess.PIPE, text=True).stdout
        names, suite = [], ""
        for line in listed.splitlines():
            word = line.split("#")[0].rstrip()
            if not line.startswith(" "):
                suite = word
            elif "DISABLED_" not in suite + word:
                names.append(suite + word.strip())
        return names[self.share - 1::self.shares]

    def first_time(self):
        # By names: the variables of GoogleTest for shares would go on to the processes that tests start of the program.
        left = self.tests()
        while left:
            self.run(left)
            known, left = left, [test for test in left if test not in self.results]
            if left == known:
                print(f"{self.program} begins none of its tests")
                for test in left:
                    self.end(test, "failed", time.monotonic())
                break

    def second_time(self):
        for line in open(self.file):
            result, seconds, test = line.split()
            if result in ("passed", "skipped"):
                test = test.removeprefix(self.prefix)
                self.results[test], self.seconds[test] = result, float(seconds)
        for test in [test for test in self.tests() if test not in self.results]:
            self.run([test])
            if self.results.get(test) == "passed":
                self.results[test] = "again"

    def write(self):
        # Without the file, the second time is a first one: nobody knows which test to run again.
        if self.file and not self.unexplained:
            with open(self.file, "w") as file:
                for test, result in self.results.items():
                    file.write(f"{result} {self.seconds[test]:.2f} {self.prefix}{test}\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("prefix")
    parser.add_argument("share")
    parser.add_argument("program")
    parser.add_argument("--filter", default=os.environ.get("GTEST_FILTER", "*"))
    parser.add_argument("--limit", type=int, default=300)  # it ends what hangs, and judges nothing
    share = Share(parser.parse_args())
    if share.file and os.path.exists(share.file):
        share.second_time()
    else:
        share.first_time()
    share.write()
    if share.failures():
        names = [share.prefix + test for test, result in share.results.items() if result == "failed"]
        print(f"failed: {', '.join(names)}")
        return 1
    if share.unexplained:
        print(f"{share.program} ended with {share.unexplained}, and no test of it has failed")
        return 1
    if not share.results and "GTEST_FILTER" not in os.environ:
        print(f"{share.program} has no test that {share.filter} names, or fewer tests than shares")
        return 1
    return 77 if set(share.results.values()) <= {"skipped"} else 0


if __name__ == "__main__":
    sys.exit(main())
