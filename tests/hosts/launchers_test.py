"""The launchers of launchers.py start two ranks on each of two hosts, with their variables, and end."""

import subprocess
import sys
import unittest

import hosts as module
import launchers
from hosts import Hosts

# One write, so that lines of several ranks do not mix.
SAYS = "import os, socket, sys; os.write(1, f'{socket.gethostname()} {os.environ[sys.argv[1]]}\\n'.encode())"


class Launchers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = cls.enterClassContext(Hosts("node1", "node2"))
        missing = launchers.missing(cls.hosts, *launchers.Slurm.programs, *launchers.OpenMpi.programs)
        if missing:
            raise unittest.SkipTest(missing)
        for each in (launchers.Sshd, launchers.Slurm, launchers.OpenMpi):
            each(cls.hosts)

    def assert_two_on_each(self, said):
        self.assertEqual(sorted(said.split("\n")[:-1]), ["node1 0", "node1 1", "node2 2", "node2 3"])

    def test_ssh_between_all_hosts(self):
        for client in self.hosts.by_name.values():
            for host in self.hosts:
                ssh = launchers.Sshd.command(host.name, "sh", "-c", "hostname; cat")
                self.assertEqual(client.run(*ssh, input="as it is"), f"{host.name}\nas it is")

    def test_slurm(self):
        srun = ["srun", "-N2", "--ntasks-per-node=2", sys.executable, "-c", SAYS, "SLURM_PROCID"]
        self.assert_two_on_each(self.hosts.hub.run(*srun))

    def test_a_program_beside_a_running_slurm_job(self):
        job = self.hosts.hub.start("srun", "-N2", "--ntasks-per-node=2", "sh", "-c", "echo $SLURM_JOB_ID; exec cat",
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        number = job.stdout.readline().strip()
        beside = ["srun", "--overlap", f"--jobid={number}", "-N2", "--ntasks-per-node=1", "hostname"]
        self.assertEqual(sorted(self.hosts.hub.run(*beside).split()), ["node1", "node2"])
        job.communicate()
        self.assertEqual(job.returncode, 0)

    def test_open_mpi(self):
        mpirun = launchers.OpenMpi.command(self.hosts, 2, sys.executable, "-c", SAYS, "OMPI_COMM_WORLD_RANK")
        for host in (self.hosts.hub, self.hosts["node1"]):
            self.assert_two_on_each(host.run(*mpirun))


if __name__ == "__main__":
    if reason := module.missing():
        print(reason)
        sys.exit(77)
    unittest.main(argv=sys.argv)
