#!/usr/bin/env python3
"""`lockstep run` over a program in C++ that is linked with Lockstep: watched_program_test.py LOCKSTEP PROGRAM"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP, PROGRAM = sys.argv[1:3]
HERE = pathlib.Path(__file__).resolve().parent


def line_of(text):
    lines = (HERE / "watched_program.cpp").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(text))


class WatchedProgram(unittest.TestCase):
    def start(self, case, *options):
        folder = tempfile.TemporaryDirectory(prefix="ls-")
        self.addCleanup(folder.cleanup)
        self.runtime = pathlib.Path(folder.name) / "run"
        self.runtime.mkdir(mode=0o700)
        self.findings = pathlib.Path(folder.name) / "findings.jsonl"
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime), "OMP_NUM_THREADS": "1"}
        launcher = [sys.executable, str(HERE.parent / "python" / "launch.py"), "2", PROGRAM, *case]
        return subprocess.Popen([LOCKSTEP, "run", *options, "--findings", self.findings, "--", *launcher], text=True,
                                env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def first_cause(self, job, code):
        errors = job.communicate(timeout=400)[1]
        self.assertEqual(job.returncode, code, errors)
        findings = [json.loads(line) for line in self.findings.read_text().splitlines()]
        self.assertEqual([each["severity"] for each in findings if each["severity"] == "fault"], ["fault"], findings)
        return findings[-1]

    def attach(self, cells):
        """What a prompt shows of the job."""
        (folder,) = self.runtime.glob("lockstep/job-*")
        done = subprocess.run([LOCKSTEP, "attach", folder.name.removeprefix("job-")], input=cells, text=True,
                              env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
        return done.stdout

    def test_a_hang(self):
        job = self.start(["hangs"], "--hang-timeout", "8")
        self.assertEqual(job.stdout.readline(), "waits\n")
        shown = self.attach("%hang\n%stack 1\n%collectives\n")
        self.assertRegex(shown, r"wait_for_data\(\) \(\S*watched_program.cpp:%d\)" % line_of("// hangs"))
        line = line_of("// step")
        self.assertRegex(shown, r"default_pg +3 .*watched_program.cpp, line %d +all_reduce \[4, 3\] float32" % line)
        fault = self.first_cause(job, 4)
        self.assertEqual((fault["verdict"], fault["kind"], fault["ranks"], fault["reference_ranks"]),
                         ("hang", "sleeping", [1], [0]))
        self.assertEqual((fault["op"]["name"], fault["op"]["seq"], fault["op"]["shape"]), ("all_reduce", 4, [4, 3]))
        self.assertRegex(fault["message"], r"rank 1 sleeps \(\S*watched_program.cpp:%d in " % line_of("// hangs"))
        self.assertRegex(fault["where"], r"watched_program.cpp:%d$" % line_of("// step"))
        self.assertNotIn("by the Flight Recorder", fault["message"])

    def test_an_exception_that_nobody_catches(self):
        fault = self.first_cause(self.start(["threw"]), 1)
        self.assertEqual((fault["verdict"], fault["kind"], fault["ranks"]), ("dead", "threw", [1]))
        self.assertIn("rank 1 raised std::runtime_error: no such sample: 17", fault["message"])
        self.assertRegex(fault["where"], r"watched_program.cpp:%d in .*load" % line_of("// threw"))

    def test_an_exit_code(self):
        fault = self.first_cause(self.start(["exited", "3"]), 5)
        self.assertRegex(fault["message"], r"ranks? [01](-1)? ended with exit code 3 \(main, or exit\(\)\)")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
