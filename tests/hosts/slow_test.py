"""Cases that take minutes, by hand. The environment is that of the other tests (tests/hosts/CMakeLists.txt)."""

import subprocess
import time
import unittest

import hosts as module
import launchers
import verdicts_test as verdicts
from hosts import BUILD, Hosts

RUN = [str(BUILD / "bin" / "lockstep"), "run", "--hang-timeout"]


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


if __name__ == "__main__":
    module.main()
