"""Cases that take minutes, by hand: slow_test.py [Cuts | Ray]. The environment is that of the other tests
(tests/hosts/CMakeLists.txt). Ray is looked for in the folder LOCKSTEP_RAY: pip install --target FOLDER ray."""

import os
import pathlib
import subprocess
import sys
import time
import unittest

import hosts as module
import launchers
import verdicts_test as verdicts
from hosts import BUILD, Hosts

RUN = [str(BUILD / "bin" / "lockstep"), "run", "--hang-timeout"]
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


class Cuts(unittest.TestCase):
    def run_with_cut(self, seconds, until=None):
        """What node1 says of a job that waits, whose link is out for so long: to these words, or for 5 s after that. TCP
        sends again after a pause that grows with the cut."""
        with Hosts("node1", "node2") as hosts:
            launchers.Sshd(hosts)
            variables = {**verdicts.VARIABLES, "TORCHELASTIC_RUN_ID": self.id(), "HANGS_SAYS": "pid"}
            jobs = [hosts[name].start(*RUN, "300", *options, "--", *verdicts.ranks_of_host("sleeps", number), env=variables,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    for number, (name, options) in enumerate((("node1", ["--hosts", "node2"]), ("node2", [])))]
            for job in jobs:
                for _ in range(2):
                    self.assertTrue(job.stdout.readline().strip().isdigit(), "a rank did not start")
            hosts["node2"].cut()
            time.sleep(seconds)
            hosts["node2"].restore()
            said = ""
            while until and until not in said:
                line = jobs[0].stderr.readline()
                self.assertTrue(line, said)
                said += line
            if not until:
                time.sleep(5)
            self.assertIsNone(jobs[0].poll(), "the job goes on")
            jobs[0].terminate()
            errors = said + jobs[0].communicate()[1]
            jobs[1].kill()
            self.assertEqual(jobs[0].returncode, 130, errors)
            return errors

    def test_5_seconds(self):
        errors = self.run_with_cut(5)
        self.assertNotIn("no word for", errors)

    def test_15_seconds(self):
        errors = self.run_with_cut(15, until="host node2 answers again")
        self.assertRegex(errors, "host node2: no word for 1[0-2] s; ranks 2-3 are not seen meanwhile")

    def test_75_seconds(self):
        errors = self.run_with_cut(75)
        self.assertRegex(errors, "host node2: no word for 6[0-2] s; ranks 2-3 are not seen any more")
        self.assertRegex(errors, "host node2 is lost with ranks 2-3: no word for 6[0-2] s")


@unittest.skipUnless("LOCKSTEP_RAY" in os.environ, "LOCKSTEP_RAY names no folder with Ray")
class Ray(unittest.TestCase):
    """Ranks are actors, on two nodes of a cluster."""

    def start_cluster(self, hosts):
        """Returns the variables with which Python finds Ray and the package."""
        paths = [os.environ["LOCKSTEP_RAY"], os.environ["PYTHONPATH"]]
        variables = {"PYTHONPATH": ":".join(paths), "OMP_NUM_THREADS": "1"}
        ray = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--num-cpus=2",
               "--disable-usage-stats", "--object-store-memory=80000000"]
        for host, where in (("node1", ["--head", "--port=6379", f"--node-ip-address={hosts['node1'].address}",
                                       "--include-dashboard=false"]),
                            ("node2", [f"--address={hosts['node1'].address}:6379"])):
            starter = hosts[host].start(*ray, *where, env=variables, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)  # its daemons have it, too
            self.assertEqual(starter.wait(), 0)
        return variables

    def test_one_verdict(self):
        sys.path.append(os.environ["LOCKSTEP_RAY"])  # which hosts see then
        with Hosts("node1", "node2") as hosts:
            launchers.Sshd(hosts)
            variables = self.start_cluster(hosts)
            driver = hosts.folder / "driver.py"
            driver.write_text(DRIVER)
            job = hosts["node1"].start(*RUN, "60", "--hosts", "node2", "--", sys.executable, driver,
                                       pathlib.Path(verdicts.SCRIPT), "sleeps", env=variables, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            output, _ = job.communicate()
            self.assertEqual(job.returncode, 4, output)
            self.assertIn("✗ hang: ranks 0-2 wait in all_reduce #4", output)
            self.assertIn("rank 3 sleeps", output)

    def left_of_session(self, hosts):
        """Actors, relays and ranks on the nodes."""
        return [line for host in hosts for line in host.processes().values()
                if any(each in line for each in ("ray::Node", "lockstep relay", "lockstep-worker"))]

    def assert_nothing_is_left(self, hosts):
        end = time.monotonic() + 60
        while left := self.left_of_session(hosts):
            self.assertLess(time.monotonic(), end, left)
            time.sleep(0.1)

    def test_sessions(self):
        """There is no ssh between these hosts."""
        sys.path.append(os.environ["LOCKSTEP_RAY"])
        with Hosts("node1", "node2") as hosts:
            script = hosts.folder / "cells.cpp"
            session = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            script.write_text("// %%\n1\n")
            output, _ = (alone := hosts["node1"].start(RUN[0], "run", "-n", "4", "--ray", script, **session)).communicate()
            self.assertEqual(alone.returncode, 3, output)
            self.assertIn("no ray", output)
            session["env"] = self.start_cluster(hosts)
            script.write_text("// %%\n#include <unistd.h>\nchar name[64]; gethostname(name, 64); std::string(name)\n"
                              "// %%\nauto sum = torch::ones({1}) * rank; dist::all_reduce(sum); sum.item<float>()\n")
            output, _ = (job := hosts["node1"].start(RUN[0], "run", "-n", "4", "--ray", script, **session)).communicate()
            self.assertEqual(job.returncode, 0, output)
            self.assertIn('0-1 = "node1"\n2-3 = "node2"\n', output)
            self.assertIn("0-3 = 6", output)
            self.assert_nothing_is_left(hosts)
            script.write_text('// %%\n#include <unistd.h>\n'
                              'if (rank == 3) std::cout << "waits" << std::endl;\nwhile (true) sleep(1);\n')
            job = hosts["node1"].start(RUN[0], "run", "-n", "4", "--ray", script, **session)
            said = ""
            while "waits\n" not in said:
                line = job.stdout.readline()
                self.assertTrue(line, said)
                said += line
            self.assertNotEqual(self.left_of_session(hosts), [])
            job.kill()
            self.assert_nothing_is_left(hosts)
            job.stdout.close()


if __name__ == "__main__":
    if reason := module.missing():
        print(reason)
        sys.exit(77)
    unittest.main(argv=sys.argv)
