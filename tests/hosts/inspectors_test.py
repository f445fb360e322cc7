"""Inspectors in jobs of torchrun on two hosts: the faults of tests/python/faults_test.py, of which each has ranks on both
hosts, are found and printed as on one, and so are the healthy twins."""

import json
import pathlib
import subprocess
import sys

import hosts as module
import launchers

PYTHON_TESTS = pathlib.Path(__file__).resolve().parents[1] / "python"
sys.path.append(str(PYTHON_TESTS))
import faults_test  # noqa: E402


class Inspectors(faults_test.Faults):
    def run_job(self, script, ranks, *names):
        """The last rank is on the second host, the others are on the first."""
        with module.Hosts("node1", "node2") as hosts:
            jobs = [host.start(*launchers.torchrun(hosts, each, number), script, hosts.folder, *names,
                               cwd=PYTHON_TESTS / "jobs", env={"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
                    for number, (host, each) in enumerate(zip(hosts, (ranks - 1, 1)))]
            output = "".join(job.communicate()[0] for job in jobs)
            self.assertEqual([job.returncode for job in jobs], [0, 0], output)
            return [json.loads((hosts.folder / f"rank-{rank}.json").read_text()) for rank in range(ranks)], output


if __name__ == "__main__":
    module.main()
