#!/usr/bin/env python3
"""What run_share.py makes of the tests of a program, and summary.py of both and of ctest's output.

    run_share_test.py SUPPORT PROBE
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SUPPORT, PROBE = sys.argv.pop(1), sys.argv.pop(1)
ALL = ["Probe.First", "Probe.Second", "Probe.Third", "Probe.Fourth", "Of/Probes.HaveParameters/0",
       "Of/Probes.HaveParameters/1"]


class Shares(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name) / "results"
        self.results.mkdir()
        self.environment = {"TEST_RESULTS": str(self.results), "PROBE_MARK": folder.name + "/mark"}

    def share(self, does="", share="1/1", *options):
        """The exit code, and what is printed."""
        done = subprocess.run([f"{SUPPORT}/run_share.py", "probe", "p.", share, PROBE, *options], text=True,
                              stdout=subprocess.PIPE, env={**os.environ, **self.environment, "PROBE_DOES": does})
        return done.returncode, done.stdout

    def of_tests(self):
        lines = [line.split() for line in (self.results / "probe").read_text().splitlines()]
        return {name.removeprefix("p."): result for result, _, name in lines}

    def summary(self, *lines):
        (self.results.parent / "output").write_text("".join(f"{line} sec\n" for line in lines))
        done = subprocess.run([f"{SUPPORT}/summary.py", self.results.parent / "output", self.results],
                              stdout=subprocess.PIPE, text=True)
        return done.returncode, done.stdout

    def test_all_pass_and_are_counted(self):
        self.assertEqual(self.share()[0], 0)
        self.assertEqual(self.of_tests(), dict.fromkeys(ALL, "passed"))
        code, text = self.summary("1/2 Test #1: probe ....   Passed    0.21",
                                  "2/2 Test #2: other ....***Skipped   0.01")
        self.assertEqual(code, 0)
        self.assertEqual(text.splitlines()[-1], "6 passed, 0 failed, 1 skipped")

    def test_shares_are_disjoint_and_have_all(self):
        seen = []
        for share in ("1/4", "2/4", "3/4", "4/4"):
            self.assertEqual(self.share(share=share)[0], 0)
            seen += self.of_tests()
            (self.results / "probe").unlink()
        self.assertEqual(sorted(seen), sorted(ALL))

    def test_a_filter(self):
        self.assertEqual(self.share("fails", "1/1", "--filter=-Probe.S*:Of/*")[0], 0)
        self.assertEqual(list(self.of_tests()), ["Probe.First", "Probe.Third", "Probe.Fourth"])

    def test_what_fails_is_named(self):
        for does, test in (("fails", "Probe.Second"), ("wrong_parameter", "Of/Probes.HaveParameters/1")):
            code, text = self.share(does)
            self.assertEqual((code, text.splitlines()[-1]), (1, f"failed: p.{test}"))
            self.assertEqual(self.of_tests(), {**dict.fromkeys(ALL, "passed"), test: "failed"})
            (self.results / "probe").unlink()

    def test_a_test_that_ends_the_process_is_named_and_the_others_run(self):
        for does, end in (("dies", "signal 9"), ("exits", "exit code 3")):
            code, text = self.share(does, "2/3")
            self.assertEqual((code, text.splitlines()[-1]), (1, "failed: p.Probe.Second"))
            self.assertIn(f"p.Probe.Second did not end: the process ended with {end}", text)
            self.assertEqual(self.of_tests(), {"Probe.Second": "failed", "Of/Probes.HaveParameters/0": "passed"})
            (self.results / "probe").unlink()

    def test_a_test_that_does_not_end_is_named(self):
        code, text = self.share("hangs", "1/1", "--filter=Probe.Second", "--limit=1")
        self.assertEqual((code, text.splitlines()[-1]), (1, "failed: p.Probe.Second"))
        self.assertIn("p.Probe.Second did not end: the process ended with signal 6", text)

    def test_a_process_that_fails_without_a_test_fails_each_time(self):
        for _ in range(2):
            code, text = self.share("ends_badly")
            self.assertEqual((code, text.splitlines()[-1]),
                             (1, f"{PROBE} ended with exit code 66, and no test of it has failed"))

    def test_a_process_that_ends_between_tests(self):
        code, text = self.share("ends_once")
        self.assertEqual((code, text.count("] Of/Probes.HaveParameters/1")), (1, 2))
        self.assertEqual(self.share("ends_once")[0], 0)
        self.assertEqual(self.of_tests(), dict.fromkeys(ALL, "passed"))

    def test_tests_that_never_begin_have_failed(self):
        code, text = self.share("leaves")
        self.assertEqual((code, text.splitlines()[-1]),
                         (1, "failed: p.Of/Probes.HaveParameters/0, p.Of/Probes.HaveParameters/1"))

    def test_a_filter_that_names_no_test(self):
        self.assertEqual(self.share("", "1/1", "--filter=None.*")[0], 1)
        self.environment["GTEST_FILTER"] = "None.*"  # of somebody who wants tests of other programs
        self.assertEqual(self.share()[0], 77)

    def test_the_second_time_only_what_failed_runs(self):
        self.assertEqual(self.share("is_unsteady skips")[0], 1)
        self.assertEqual(self.of_tests()["Probe.Third"], "failed")
        code, text = self.share("is_unsteady skips")
        self.assertEqual(code, 0)
        self.assertNotIn("Probe.First", text)
        self.assertEqual(self.of_tests(),
                         {**dict.fromkeys(ALL, "passed"), "Probe.Third": "again", "Probe.Fourth": "skipped"})
        code, text = self.summary("1/1 Test #1: probe ....***Failed    0.21",
                                  "    Test #1: probe ....   Passed    0.20")
        self.assertEqual(code, 1)
        self.assertIn("Passed at the second try only: p.Probe.Third\n", text)
        self.assertEqual(text.splitlines()[-1], "5 passed, 0 failed, 1 skipped")

    def test_what_fails_twice_is_counted_once(self):
        for _ in range(2):
            self.assertEqual(self.share("fails")[0], 1)
        code, text = self.summary("1/1 Test #1: probe ....***Failed    0.21",
                                  "    Test #1: probe ....***Failed    0.20")
        self.assertEqual((code, text.splitlines()[-1]), (0, "5 passed, 1 failed, 0 skipped"))

    def test_a_share_without_results_counts_as_a_test(self):
        code, text = self.summary("1/1 Test #1: probe ....***Timeout  900.02",
                                  "    Test #1: probe ....***Timeout  900.02")
        self.assertEqual((code, text.splitlines()[-1]), (0, "0 passed, 1 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
