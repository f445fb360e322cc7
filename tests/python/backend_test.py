"""The backend `lockstep` of torch.distributed: the same results as with gloo, calls that are compared before data moves,
and verdicts of `lockstep run` that are proven."""

import functools
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from ranks import HERE, WatchedJob, environment, launcher, line_in

JOB = HERE / "jobs" / "backend.py"
line_of = functools.partial(line_in, JOB)
BOTH = "cpu:lockstep,cuda:lockstep"


class Backend(unittest.TestCase):
    def run_case(self, backend, case, ranks=2, **more):
        """What each rank has written."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*launcher(ranks, copied=True), str(JOB), backend, folder, case], env=environment(**more), cwd=HERE / "jobs",
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout[-6000:])
            return [pathlib.Path(folder, f"rank-{rank}").read_text().splitlines() for rank in range(ranks)]

    def equal(self, case, backend, ranks=2):
        """Over Gloo the results are those of the backend gloo, bit by bit. In shared memory two ranks have them, too."""
        expected = {size: self.run_case("gloo", case, size) for size in {2, ranks}}
        self.assertTrue(all(expected[ranks]))
        self.assertEqual(self.run_case(backend, case, ranks, LOCKSTEP_BACKEND="gloo"), expected[ranks])
        self.assertEqual(self.run_case(backend, case, 2), expected[2])

    def test_data_parallel_training_is_the_same(self):
        self.equal("data_parallel", BOTH)

    def test_sharded_training_is_the_same(self):
        self.equal("sharded", "lockstep", ranks=4)

    def test_operations_are_the_same(self):
        self.equal("operations", "lockstep", ranks=3)

    def test_ranks_of_one_machine_share_memory(self):
        for wish, shared in (("", "True"), ("auto", "True"), ("shared_memory", "True"), ("gloo", "False")):
            self.assertEqual(self.run_case("lockstep", "shares_memory", 3, LOCKSTEP_BACKEND=wish), [[shared]] * 3, wish)

    def test_an_unknown_transport_is_an_error_of_all_ranks(self):
        with self.assertRaises(AssertionError) as raised:
            self.run_case("lockstep", "shares_memory", LOCKSTEP_BACKEND="glo")
        text = str(raised.exception)
        self.assertEqual(text.count("LOCKSTEP_BACKEND is 'glo' on rank 0; it has to be auto, gloo or shared_memory"), 2, text)

    def test_groups_that_are_made_again(self):
        self.run_case("lockstep", "groups_again")

    def test_an_abort_ends_connecting_again(self):
        self.assertEqual(self.run_case("lockstep", "aborted_reconnect"), [["2.0"], ["2.0"]])

    def test_inspectors_beside_it(self):
        self.run_case(BOTH, "inspectors")

    def test_inspectors_read_its_log(self):
        results = [json.loads(text) for (text,) in self.run_case("lockstep", "timings", ranks=3)]
        parameters = 4 * (13 * 33 + 33 + 2 * 33 + 33 * 7 + 7)
        for of_rank in results:
            self.assertGreater(of_rank["wrapper"]["reductions"], 1)
            self.assertEqual(of_rank["by hand"]["reductions"], 1)
            for name, size in (("wrapper", parameters), ("by hand", 4 * 33 * 7)):
                report = of_rank[name]
                self.assertEqual((report["reduced_bytes"], report["ranks"]), (size, [0, 1, 2]))
                self.assertGreater(report["reduction"], 0)
                self.assertTrue(0 <= report["hidden"] <= 1, report)
                self.assertRegex(report["message"],
                                 r"^[^;]* exposed; [0-9]+ reductions? of [0-9.]+ k?B alone takes? [^,]*, of which [0-9]+% hidden$")
            self.assertEqual(of_rank["timeline"], results[0]["timeline"])
        for of_rank in results[:2]:  # the third does not call
            report = of_rank["two ranks"]
            self.assertEqual((report["reductions"], report["reduced_bytes"], report["ranks"]), (1, parameters, [0, 1]))

        events = results[0]["events"]
        begins = [each for each in events if each["ph"] == "b"]
        counts = [sum(each["cat"] == kind for each in begins) for kind in ("bucket", "collective")]
        self.assertEqual(counts, [results[0]["timeline"][each] for each in ("buckets", "collectives")])
        for rank in range(3):
            mine = [each for each in begins if each["pid"] == rank]
            ends = {each["id"]: each["ts"] for each in events if each["ph"] == "e" and each["pid"] == rank}
            self.assertEqual(set(ends), {each["id"] for each in mine})
            self.assertTrue(all(each["ts"] < ends[each["id"]] for each in mine))
            last = mine[-1]
            self.assertEqual((last["cat"], last["name"]), ("collective", f"all_reduce #{last['args']['seq']}"))
            self.assertEqual({key: last["args"][key] for key in ("group", "shape", "dtype", "bytes", "line")},
                             {"group": "0", "shape": [5], "dtype": "float32", "bytes": 20,
                              "line": f"{JOB}:{line_of('# of the timeline')} in timings"})
            bucket = [each for each in mine if each["cat"] == "bucket"][-1]
            self.assertEqual((bucket["args"]["bytes"], bucket["args"]["line"]),
                             (parameters, f"{JOB}:{line_of('# buckets')} in step"))
            by_hand = [each["cat"] for each in mine if each["args"].get("line") == f"{JOB}:{line_of('# by hand')} in by_hand"]
            self.assertEqual(set(by_hand), {"collective"})
            rows = {each["args"]["name"] for each in events if each["ph"] == "M" and each["pid"] == rank}
            self.assertLessEqual({f"rank {rank}", "collectives"}, rows)
            self.assertNotIn("cells", rows)

    def test_errors_name_functions_of_python(self):
        messages = self.run_case("lockstep", "wrong_arguments")[0]
        self.assertEqual(len(messages), 4, messages)
        for each in messages:
            self.assertRegex(each, "^torch.distributed.all_(reduce|gather): ")
            self.assertNotIn("::", each)
        self.assertIn("torch.distributed.all_reduce: AVG of bool is not defined; convert first: t.to(torch.float32)", messages)
        self.assertTrue(any("[t] * n holds one tensor n times" in each for each in messages), messages)

    def test_calls_that_differ_raise_before_data_moves(self):
        results = self.run_case("lockstep", "mismatch", ranks=3)
        self.assertEqual(results[1:], results[:1] * 2)
        name, message = results[0]
        self.assertEqual(name, "RuntimeError")
        self.assertIn(f"rank 1 called all_reduce float32 [5] SUM as #2 of group 0 ({JOB}:{line_of('# rank 1')} in mismatch)",
                      message)
        self.assertIn(f"ranks 0,2 all_reduce float32 [4] SUM ({JOB}:{line_of('# others')} in mismatch)", message)

    def test_registering_it_changes_nothing_for_others(self):
        script = ("import os, warnings; warnings.simplefilter('error'); import lockstep, torch; import torch.distributed as d;"
                  "d.init_process_group('cpu:gloo', rank=0, world_size=1, store=d.HashStore());"
                  "print(d.group.WORLD.name(), 'LOCKSTEP' in list(d.distributed_c10d.Backend._plugins));"
                  "d.barrier(); d.destroy_process_group()")
        done = subprocess.run([sys.executable, "-c", script], env=environment(), text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "gloo False"), done.stderr)


class Verdicts(unittest.TestCase):
    def run_job(self, case, *options, ranks=2):
        job = WatchedJob(lambda folder: [*launcher(ranks, copied=True), "hangs.py", case], *options, HANGS_BACKEND="lockstep")
        self.assertEqual(job.left, [], "the job's folder stays")
        return job

    def test_a_rank_that_sleeps_is_proven(self):
        job = self.run_job("sleeps", "--hang-timeout", "5")
        self.assertEqual(job.code, 4, job.errors[-4000:])
        fault = job.findings[-1]
        self.assertEqual((fault["verdict"], fault["kind"], fault["ranks"], fault["reference_ranks"]),
                         ("hang", "sleeping", [1], [0]))
        self.assertIn("which rank 1 has not called; rank 1 sleeps (", fault["message"])
        self.assertNotIn("Flight Recorder", fault["message"])

    def test_calls_that_differ(self):
        job = self.run_job("mismatch", ranks=3)
        self.assertEqual(job.code, 1, job.errors[-4000:])
        (fault,) = job.faults
        self.assertEqual((fault["inspector"], fault["verdict"], fault["ranks"], fault["reference_ranks"]),
                         ("collectives", "op_mismatch", [1], [0, 2]))
        self.assertIn("rank 1 called all_reduce float32 [2, 2] SUM as #4 of group 0 (", fault["message"])

    def test_a_straggler(self):
        job = self.run_job("straggler")
        self.assertEqual(job.code, 0, job.errors[-4000:])
        (note,) = job.findings
        self.assertEqual((note["severity"], note["verdict"], note["ranks"]), ("note", "straggler", [1]))
        self.assertIn("of group default_pg in which ranks waited", note["message"])

    def test_a_healthy_job(self):
        job = self.run_job("healthy", "--hang-timeout", "8")
        # On a busy machine a rank may wait for a processor, and is a straggler then.
        others = [each for each in job.findings if each["verdict"] != "straggler"]
        self.assertEqual((job.code, others), (0, []), job.errors)
        self.assertNotIn("✗", job.errors)
        if not job.findings:
            self.assertEqual(job.errors, "")


if __name__ == "__main__":
    unittest.main()
