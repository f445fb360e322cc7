"""Ray, of PyPI, on two hosts: a session whose ranks it starts, and a job whose ranks are its actors."""

import os
import pathlib
import subprocess
import sys
import unittest

import hosts as module
import launchers
import verdicts_test as verdicts
from hosts import BUILD, Hosts
from packages import ray_folder

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from waiting import LIMIT_S, wait_until  # noqa: E402

RAY = ray_folder()
LOCKSTEP = str(BUILD / "bin" / "lockstep")
DRIVER = """
import os, runpy, sys
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init(address="auto")

class Rank:
    def run(self, rank, script, case):
        os.environ.update(RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE="2",
                          MASTER_ADDR="node1", MASTER_PORT="29500", HANGS_RANK="3")
        sys.argv = [script, case]
        runpy.run_path(script)

nodes = sorted(ray.nodes(), key=lambda node: node["NodeManagerAddress"])
on = [NodeAffinitySchedulingStrategy(nodes[rank // 2]["NodeID"], soft=False) for rank in range(4)]
ranks = [ray.remote(num_cpus=0, scheduling_strategy=each)(Rank).remote() for each in on]
ray.get([rank.run.remote(number, *sys.argv[1:]) for number, rank in enumerate(ranks)])
"""


class Ray(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = cls.enterClassContext(Hosts("node1", "node2"))
        cls.variables = {"PYTHONPATH": f"{RAY}:{os.environ['PYTHONPATH']}", "OMP_NUM_THREADS": "1"}
        ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--num-cpus=0",
               "--disable-usage-stats", "--object-store-memory=80000000"]
        head = cls.hosts["node1"].address
        for host, where in (("node1", ["--head", "--port=6379", f"--node-ip-address={head}", "--include-dashboard=false"]),
                            ("node2", [f"--address={head}:6379"])):
            starter = cls.hosts[host].start(*ray, *where, env=cls.variables, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)  # its daemons have it, too
            assert starter.wait() == 0, f"Ray did not start on {host}"

    def start(self, *cells, with_ray=True):
        """A session of four ranks, from node1. There is no ssh between the hosts."""
        script = self.hosts.folder / "cells.cpp"
        script.write_text("".join(f"// %%\n{cell}\n" for cell in cells))
        return self.hosts["node1"].start(LOCKSTEP, "run", "--keep-going", "-n", "4", "--ray", script,
                                         env=self.variables if with_ray else {}, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run_cells(self, *cells, code, **more):
        session = self.start(*cells, **more)
        output, _ = session.communicate(timeout=LIMIT_S)
        self.assertEqual(session.returncode, code, output)
        return output

    def left_of_session(self):
        """Actors, relays and ranks on the nodes."""
        return [line for host in self.hosts for line in host.processes().values()
                if any(each in line for each in ("ray::Node", "lockstep relay", "lockstep-worker"))]

    def assert_nothing_is_left(self):
        wait_until(lambda: not self.left_of_session(), self.left_of_session)

    def test_a_python_without_ray(self):
        self.assertIn("no ray", self.run_cells("1", code=3, with_ray=False))

    def test_a_session_one_of_whose_ranks_dies(self):
        output = self.run_cells(
            "#include <signal.h>\n#include <unistd.h>\nchar name[64]; gethostname(name, 64); std::string(name)",
            "auto sum = torch::ones({1}) * rank; dist::all_reduce(sum); sum.item<float>()",
            "if (rank == 3) raise(SIGKILL);\ndist::barrier();", "%%rank 0-2\nrank", code=5)
        self.assertIn('0-1 = "node1"\n2-3 = "node2"\n', output)
        self.assertIn("0-3 = 6\n", output)
        self.assertIn("rank 3: SIGKILL in cell 3\n", output)
        self.assertIn("0   = 0\n1   = 1\n2   = 2\n", output)
        self.assert_nothing_is_left()

    def test_a_session_that_is_killed(self):
        session = self.start('#include <unistd.h>\nif (rank == 3) std::cout << "waits" << std::endl;\nwhile (true) sleep(1);')
        said = [""]
        while "waits\n" not in said[-1]:
            said.append(session.stdout.readline())
            self.assertTrue(said[-1], said)
        self.assertNotEqual(self.left_of_session(), [])
        session.kill()
        self.assert_nothing_is_left()
        session.communicate()

    def test_a_job_of_actors(self):
        if missing := launchers.missing(self.hosts, *launchers.Sshd.programs):
            self.skipTest(missing)
        launchers.Sshd(self.hosts)
        driver = self.hosts.folder / "driver.py"
        driver.write_text(DRIVER)
        job = self.hosts["node1"].start(LOCKSTEP, "run", "--hang-timeout", "30", "--hosts", "node2", "--", sys.executable,
                                        driver, verdicts.SCRIPT, "sleeps", env=self.variables, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        output, _ = job.communicate()
        self.assertEqual(job.returncode, 4, output)
        self.assertIn("✗ hang: ranks 0-2 wait in all_reduce #4", output)
        self.assertIn("rank 3 sleeps", output)


if __name__ == "__main__":
    if reason := module.missing() or ("" if RAY else "Ray is missing: tests/hosts/packages.py ray gets it"):
        print(reason)
        sys.exit(77)
    unittest.main(argv=sys.argv)
