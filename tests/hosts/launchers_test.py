"""The launchers of launchers.py start two ranks on each of two hosts, with their variables, and end; and a `lockstep run` for
each rank that mpirun starts, or around torchrun on each host."""

import subprocess
import sys
import unittest

import hosts as module
import launchers
from hosts import Hosts
from verdicts_test import PATIENT_RUN, RUN, SCRIPT, VARIABLES, OnTwoHosts, line_of, one_rank

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


class WithinMpirun(OnTwoHosts):
    """That of rank 0 judges all ranks. It has the hosts from the daemons of Open MPI, or from mpirun's command line."""
    services = (launchers.Sshd, launchers.OpenMpi)

    def run_mpirun(self, host, case, *run):
        rank = one_rank(case, "$OMPI_COMM_WORLD_RANK", "$OMPI_COMM_WORLD_LOCAL_RANK")
        mpirun, *options = launchers.OpenMpi.command(self.hosts, 2, *run, "--", *rank)
        exported = [word for name in (*VARIABLES, "LC_ALL") for word in ("-x", name)]
        self.run_job((host, [mpirun, *exported, *options]))

    def test_from_a_host_without_ranks(self):
        self.run_mpirun("hub", "killed", *PATIENT_RUN)
        self.assert_one_verdict("rank 3", "node2", "was killed by SIGKILL", code=5)

    def test_from_the_first_host(self):
        self.run_mpirun("node1", "sleeps", *RUN)
        self.assert_one_verdict("ranks 0-2 wait in all_reduce #4", "rank 3", "node2", "sleeps",
                                line_of("time.sleep(FOREVER)  # the culprit"), code=4)

    def test_a_healthy_job(self):
        self.run_mpirun("node1", "healthy", *RUN)
        self.assertEqual((self.codes, self.output), ([0], "rank 0 is done\n"), self.said)
        self.assertNotIn("✗", self.said)
        self.assertNotIn("lockstep:", self.said)
        self.assert_nothing_is_left()


class AroundTorchrun(OnTwoHosts):
    def run_torchrun(self, *options):
        """Started on each host, the first of which has the `options`. Each keeps what its ranks print in its own folder,
        which has folders for its ranks 0 and 1."""
        logs = self.hosts.folder / "logs"
        commands = [(host.name, [*PATIENT_RUN, *(options if number == 0 else ()), "--",
                                 *launchers.torchrun(self.hosts, 2, number), "--log-dir", str(logs / host.name),
                                 "--redirects", "3", str(SCRIPT), "threw"])
                    for number, host in enumerate(self.hosts)]
        self.run_job(*commands)
        return [logs / host.name for host in self.hosts]

    def test_one_verdict_and_what_is_left(self):
        logs = self.run_torchrun("--hosts", "node2")
        words = "rank 3 raised ValueError: no such sample: 17", line_of("raise ValueError")
        self.assert_one_verdict(*words, "rank 3 on node2", code=1)
        said = self.hosts.hub.run(RUN[0], "diagnose", *logs, check=False)
        findings = [line for line in said.splitlines() if line.startswith(("✗ ", "• "))]
        self.assertTrue(findings[-1].startswith(f"✗ {words[0]}"), said)
        self.assertIn(words[1], findings[-1])

    def test_without_hosts(self):
        """Neither knows of the other, and says so."""
        self.run_torchrun()
        self.assertIn("ranks 2-3 were not seen here. If they run on other machines, name these with --hosts", self.errors[0])
        self.assert_nothing_is_left()


if __name__ == "__main__":
    module.main()
