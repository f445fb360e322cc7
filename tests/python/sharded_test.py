"""DTensor, fully_shard and FullyShardedDataParallel: what should be equal is compared where it should be."""

import sys
import unittest

from ranks import run_job


class Sharded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results, _ = run_job("sharded.py", 4)

    def found(self, name, everywhere=True):
        for of_rank in self.results:
            self.assertIsInstance(of_rank[name], list, of_rank[name])
        if everywhere:  # apart from times, which are in the messages of `ok`, and from the rank that looks at itself
            faults = [[each for each in of_rank[name] if each["severity"] == "fault" and each["verdict"] != "stale"]
                      for of_rank in self.results]
            self.assertTrue(all(each == faults[0] for each in faults), faults)
        return self.results[0][name]

    def the_fault(self, name):
        faults = [each for each in self.found(name) if each["severity"] == "fault"]
        self.assertEqual(len(faults), 1, faults)
        return faults[0]

    def test_healthy_models_have_no_fault_and_say_what_was_not_compared(self):
        for name in ("healthy_fsdp2", "healthy_fsdp2_replicated", "healthy_fsdp1"):
            with self.subTest(name):
                found = self.found(name)
                self.assertEqual([each["message"] for each in found if each["severity"] == "fault"], [])
                self.assertEqual({each["verdict"] for each in found}, {"ok"})
        of_shards = self.found("healthy_fsdp2")[0]["message"]
        self.assertIn("of 4 parts that only one rank has, the layout is equal and the values are finite, and they are "
                      "not compared", of_shards)
        self.assertIn("4 parts equal among the ranks that replicate them",
                      self.found("healthy_fsdp2_replicated")[0]["message"])

    def test_a_replica_is_compared_with_the_ranks_that_have_the_same_part(self):
        fault = self.the_fault("drifted_replica")
        self.assertEqual((fault["verdict"], fault["ranks"], fault["tensor"], fault["object"]),
                         ("mismatch", [1, 3], "fc1.weight", "net"))
        self.assertEqual(fault["tensors"][0]["first"], [0, 0])

    def test_parts_that_no_mesh_has_together_are_compared(self):
        for name, tensors in (("one_dimension_in_place_of_all", 4), ("sub_groups_of_fsdp1", 1)):
            with self.subTest(name):
                ok, *faults = self.found(name)
                self.assertEqual(ok["verdict"], "ok")
                self.assertIn(f"; {tensors} part{'s' if tensors > 1 else ''} equal among ranks of different meshes",
                              ok["message"])
                self.assertEqual([(each["verdict"], each["ranks"], each["severity"]) for each in faults],
                                 [("mismatch", [0, 2], "fault"), ("mismatch", [1, 3], "fault")])
                self.assertIn("no mesh has ranks 0,2 together", faults[0]["message"])

    def test_ranks_outside_of_the_mesh(self):
        (ok,) = self.found("outside_of_the_mesh")
        self.assertIn("; ranks 2-3 are outside of the mesh of 1 tensor, and have no part to compare", ok["message"])

    def test_an_optimizer_that_steps_other_parameters(self):
        of_verify, of_watch = self.found("optimizer_before_fully_shard")
        self.assertEqual((of_verify["severity"], of_verify["verdict"]), ("fault", "missing"))
        self.assertIn("none of its parameters is one of the model's", of_verify["message"])
        self.assertEqual((of_watch["severity"], of_watch["verdict"]), ("fault", "stale"))
        self.assertIn("10 steps have not changed any parameter on rank 0: the optimizer has none of them",
                      of_watch["message"])

    def test_gradients_that_are_not_there_or_not_kept(self):
        none, ok, local = self.found("gradients_of_divided_parameters")
        self.assertIn("no gradients: call grads between backward and zero_grad", none["message"])
        self.assertIn("not checked: whether they are the mean over the ranks, whether the ranks read different batches",
                      ok["message"])
        self.assertIn("not checked before it", local["message"])
        self.assertEqual([each["verdict"] for each in (none, ok, local)], ["missing", "ok", "missing"])

    def test_ranks_that_read_the_same_batch(self):
        found = self.found("the_same_batch")
        self.assertEqual([(each["verdict"], each["kind"]) for each in found],
                         [("ok", None), ("duplicate_data", "input"),
                          ("missing", "gradient"), ("duplicate_data", "input"),
                          ("ok", None), ("missing", "gradient")])
        self.assertIn("the inputs of the last forward are equal bit by bit on ranks 0-3", found[1]["message"])
        self.assertNotIn("different batches", found[0]["message"])

    def test_nan_in_a_part_of_one_rank(self):
        fault = self.the_fault("nan_in_a_shard")
        self.assertEqual((fault["verdict"], fault["ranks"], fault["tensor"]), ("nan", [2], "fc1.weight"))

    def test_layouts_are_compared_on_all_ranks(self):
        fault = self.the_fault("another_placement")
        self.assertEqual((fault["verdict"], fault["ranks"], fault["reference_ranks"], fault["tensor"]),
                         ("mismatch", [3], [0, 1, 2], "weight.layout"))
        self.assertIn("Shard(1)", fault["message"])

    def test_a_replicated_tensor(self):
        fault = self.the_fault("replicated_tensor")
        self.assertEqual((fault["verdict"], fault["ranks"], fault["reference_ranks"]), ("mismatch", [3], [0, 1, 2]))

    def test_a_watch_names_the_steps(self):
        fault = self.the_fault("watched_drift")  # the same on every rank: each of them raises
        self.assertEqual((fault["verdict"], fault["ranks"], fault["step"]), ("mismatch", [0, 2], 4))
        self.assertIn("equal at step 2, not at step 4", fault["message"])

    def test_operators_of_divided_tensors(self):
        found = self.found("nan_in_a_step")
        self.assertEqual([each["verdict"] for each in found if each["severity"] == "fault"], ["nan"], found)

    def test_a_flat_parameter_that_is_not_divided(self):
        fault = self.the_fault("drifted_fsdp1")
        self.assertEqual((fault["verdict"], fault["ranks"], fault["tensor"]), ("mismatch", [2], "flat"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
