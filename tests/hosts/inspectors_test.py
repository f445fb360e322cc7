"""Inspectors in a job of torchrun on two hosts, two ranks on each: they compare across hosts, and report once."""

import json
import pathlib
import subprocess
import sys
import unittest

import hosts as module
import launchers
from hosts import Hosts

PYTHON_TESTS = pathlib.Path(__file__).resolve().parents[1] / "python"
# Cases of jobs/faults.py. The rank at fault is on the second host, or two ranks that it is compared with are.
CASES = {"verify_order": ("order_mismatch", 2, "rank 2 has the same names in another order than ranks 0-1,3"),
         "verify_skipped_step": ("mismatch", 2, "rank 2 differs from ranks 0-1,3"),  # found by a watch
         "grads_nan_of_one_rank": ("nan", 1, "NaN in all 4 gradients after backward on rank 1, before the reduction")}


class Inspectors(unittest.TestCase):
    def test_findings_are_of_all_ranks_and_are_printed_once(self):
        with Hosts("node1", "node2") as hosts:
            jobs = [host.start(*launchers.torchrun(hosts, 2, number), "faults.py", hosts.folder, *CASES,
                               cwd=PYTHON_TESTS / "jobs", env={"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True) for number, host in enumerate(hosts)]
            outputs = [job.communicate()[0] for job in jobs]
            self.assertEqual([job.returncode for job in jobs], [0, 0], "".join(outputs))
            results = [json.loads((hosts.folder / f"rank-{rank}.json").read_text()) for rank in range(4)]
        for name, (verdict, rank, words) in CASES.items():
            with self.subTest(name):
                for of_rank in results:
                    (finding,) = of_rank[name]
                    self.assertEqual((finding["severity"], finding["verdict"], finding["ranks"]),
                                     ("fault", verdict, [rank]))
                self.assertEqual("".join(outputs).count(f"✗ net: {words}"), 1, "".join(outputs))
        self.assertEqual("".join(outputs).count("✗"), len(CASES))


if __name__ == "__main__":
    if reason := module.missing():
        print(reason)
        sys.exit(77)
    unittest.main(argv=sys.argv)
