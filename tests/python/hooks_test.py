"""Jobs with Gloo that nobody has edited, under `lockstep run` with torch 2.14 or newer: c10d's hooks compare the calls
of ranks before data moves, and prove the verdicts of hangs (python/operators/job_hooks.h)."""

import functools
import pathlib
import subprocess
import sys
import tempfile
import unittest

from ranks import HAS_HOOKS, HERE, TORCH, WatchedJob, environment, launcher, line_in

JOB = HERE / "jobs" / "hooks.py"
line_of = functools.partial(line_in, JOB)


def command(ranks, folder, case):
    return [*launcher(ranks), str(JOB), "gloo", folder, case]


class Cases(unittest.TestCase):
    def run_case(self, case, code, *options, ranks=2, **more):
        job = WatchedJob(lambda folder: command(ranks, folder, case), *options, **more)
        self.assertEqual(job.code, code, job.errors[-6000:])
        self.assertEqual(job.left, [], "the job's folder stays")
        self.assertNotIn("lockstep: the collectives of", job.errors)
        return job


class Differences(Cases):
    def difference(self, case, verdict, *sides, ranks=2):
        """`sides`: what the error says of each, with the lines of the calls."""
        job = self.run_case(case, 1, ranks=ranks)
        (fault,) = job.faults
        self.assertEqual((fault["inspector"], fault["verdict"]), ("collectives", verdict))
        for each in sides:
            self.assertIn(each, fault["message"])
            self.assertIn(each, job.errors)  # of the exception
        said = job.output.split()
        self.assertEqual(said, ["untouched"] * len(said))
        self.assertGreater(len(said), 0, "no rank raised")
        return fault

    def test_another_operation(self):
        fault = self.difference(
            "operation", "op_mismatch", f"rank 1 called all_reduce float32 [4, 3] as #4 of group 0 ({JOB}:",
            f":{line_of('# rank 1')} in", "ranks 0,2 broadcast float32 [4, 3] root 1 (", f":{line_of('# others')} in",
            ranks=3)
        self.assertEqual((fault["ranks"], fault["reference_ranks"]), ([1], [0, 2]))

    def test_another_shape(self):
        line = f"({JOB}:{line_of('# another shape')} in"
        self.difference("shape", "shape_mismatch", "all_reduce float32 [4]", "float32 [5]", line)

    def test_another_dtype(self):
        self.difference("dtype", "dtype_mismatch", "all_reduce float32 [4]", "float64 [4]", f"({JOB}:")

    def test_another_root(self):
        self.difference("root", "op_mismatch", "broadcast float32 [4] root 0", "broadcast float32 [4] root 1",
                        f"({JOB}:")

    def test_a_group_of_some_ranks(self):
        fault = self.difference("in_a_subgroup", "shape_mismatch", "all_reduce float32 [3]", "float32 [4]", ranks=3)
        self.assertEqual(set(fault["ranks"]) | set(fault["reference_ranks"]), {1, 2})


class Hangs(Cases):
    def hang(self, case, **more):
        job = self.run_case(case, 4, "--hang-timeout", "5", **more)
        self.assertNotIn("Flight Recorder", str(job.faults))  # proven
        self.assertEqual(job.faults[-1], job.findings[-1], "the first cause is not last")
        return job.faults[-1]

    def sleeping(self, case, **more):
        fault = self.hang(case, **more)
        self.assertEqual((fault["verdict"], fault["kind"], fault["ranks"], fault["reference_ranks"]),
                         ("hang", "sleeping", [1], [0]))
        self.assertEqual((fault["op"]["name"], fault["op"]["seq"], fault["op"]["shape"]), ("all_reduce", 4, [4, 3]))
        self.assertIn("which rank 1 has not called; rank 1 sleeps (", fault["message"])
        self.assertIn(f"hooks.py:{line_of('# rank 1 sleeps')} in sleeps", fault["message"])
        self.assertIn(f"hooks.py:{line_of('dist.all_reduce(torch.ones(4, 3))')} in steps", fault["where"])

    def test_a_rank_that_sleeps(self):
        self.sleeping("sleeps")

    def test_under_the_wrapper_of_torchs_debug_level(self):
        self.sleeping("sleeps", TORCH_DISTRIBUTED_DEBUG="DETAIL")

    def test_groups_that_were_made_again(self):
        self.sleeping("sleeps_in_new_groups")

    def test_a_rank_that_has_ended(self):
        fault = self.hang("ended", ranks=3)
        self.assertEqual((fault["verdict"], fault["kind"], fault["ranks"], fault["reference_ranks"]),
                         ("hang", "finished", [1], [0, 2]))

    def test_a_rank_in_a_collective_of_another_group(self):
        fault = self.hang("another_group", ranks=3)
        self.assertEqual((fault["verdict"], fault["kind"]), ("hang", "other_collective"))
        self.assertIn(f"hooks.py:{line_of('# rank 1 is here')}", str(fault))

    def test_calls_that_are_logged_and_not_compared(self):
        job = self.run_case("operation", 4, "--hang-timeout", "5", ranks=3, LOCKSTEP_CHECK_COLLECTIVES="0")
        self.assertEqual(job.output, "")  # nobody raised
        fault = job.faults[-1]
        self.assertEqual((fault["inspector"], fault["verdict"], fault["ranks"], fault["reference_ranks"]),
                         ("hang", "op_mismatch", [1], [0, 2]), fault["message"])
        self.assertNotIn("Flight Recorder", fault["message"])


class Healthy(Cases):
    def test_the_same_results_without_a_finding(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(command(4, folder, "healthy"), cwd=HERE / "jobs", env=environment(), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(done.returncode, 0, done.stdout[-6000:])
            alone = [each.read_text() for each in sorted(pathlib.Path(folder).glob("rank-*"))]
        self.assertTrue(all(alone) and len(alone) == 4)
        job = self.run_case("healthy", 0, "--hang-timeout", "60", ranks=4)
        self.assertEqual((job.findings, job.results, job.output, job.errors), ([], alone, "", ""))


if __name__ == "__main__":
    if not HAS_HOOKS:
        print(f"torch {TORCH} has no hooks of process groups: they came with 2.14 (tools/test --libtorch 2.15.0)")
        sys.exit(77)
    unittest.main()
