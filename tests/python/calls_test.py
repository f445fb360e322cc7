"""Calls that some ranks do not make, or make otherwise; errors; the same bits with and without inspectors."""

import os
import sys
import tempfile
import unittest

from ranks import run_job


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.results, cls.output = run_job("calls.py", 3, LOCKSTEP_FINDINGS=os.path.join(folder, "findings.jsonl"))

    def found(self, name, rank=0):
        for of_rank in self.results:
            self.assertIsInstance(of_rank[name], list, of_rank[name])
        return self.results[rank][name]

    def test_a_rank_that_does_not_call_is_named(self):
        for rank in (0, 2):
            (fault,) = self.found("first_call_without_a_rank", rank)
            self.assertEqual((fault["verdict"], fault["kind"], fault["ranks"], fault["reference_ranks"], fault["object"]),
                             ("missing", "call", [1], [0, 2], "net"))
            self.assertIn("rank 1 did not call verify within 2 s", fault["message"])
        self.assertEqual([each["verdict"] for each in self.found("and_then_with_all", 1)], ["ok"])

    def test_a_rank_that_skips_a_step(self):
        self.assertEqual([each["verdict"] for each in self.found("a_skipped_step", 1)], ["ok"])
        self.assertEqual(self.output.count("does every rank run each step?"), 2, self.output)

    def test_seeds_that_are_equal(self):
        self.assertEqual([(each["inspector"], each["verdict"], each["kind"]) for each in self.found("equal_seeds")],
                         [("verify", "ok", None), ("verify", "duplicate_data", "rng"),
                          ("data", "ok", None), ("data", "duplicate_data", "rng"),
                          ("verify", "ok", None), ("data", "ok", None)])

    def test_ranks_that_call_something_else(self):
        for name in ("different_inspectors", "different_objects"):
            (fault,) = self.found(name)
            self.assertEqual((fault["verdict"], fault["kind"]), ("order_mismatch", "call"))

    def test_a_few_ranks(self):
        (ok,) = self.found("some_ranks")
        self.assertEqual((ok["verdict"], ok["ranks"]), ("ok", [0, 1]))

    def test_the_rank_that_made_an_inf_is_named(self):
        (fault,) = self.found("inf_through_the_reduction")
        self.assertEqual((fault["verdict"], fault["ranks"], fault["op"]["name"]), ("inf", [1], "div"))
        self.assertRegex(fault["where"], r"^calls\.py, line [0-9]+$")

    def test_everything_else(self):
        self.assertEqual(self.found("raised")[0]["ranks"], [0, 1, 2])
        self.assertIn("✗ x: ranks 0-2 differ", self.output)  # logged, once
        self.assertEqual([each["verdict"] for each in self.found("a_step_that_raises")], ["ok"])
        self.assertEqual([each["verdict"] for each in self.found("groups_made_again")], ["ok", "ok"])
        self.assertEqual([each["verdict"] for each in self.found("wrong_arguments")], ["ok"])
        self.assertEqual([each["verdict"] for each in self.found("after_fake_tensors") if each["inspector"] == "time_sync"
                          and each["verdict"] != "straggler"], ["ok"])
        self.assertEqual([each["verdict"] for each in self.found("published")], ["ok"])
        same, *differences = self.found("values")
        self.assertEqual(same["verdict"], "ok")
        self.assertEqual({each["tensor"] for each in differences}, {"nested.x", "lr"})


class Training(unittest.TestCase):
    def test_9_looking_does_not_touch(self):
        results, output = run_job("training.py", 2, torchrun=True)
        for of_rank in results:
            self.assertIsInstance(of_rank["identical"], list, of_rank["identical"])
            self.assertEqual([each["message"] for each in of_rank["identical"] if each["severity"] == "fault"], [])
            self.assertEqual({each["inspector"] for each in of_rank["identical"]},  # all of them have looked
                             {"ranks", "grads", "nan", "lockstep", "time_sync"}, output)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
