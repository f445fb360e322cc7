"""Programs that end, of which a session over two hosts is made besides its own, and what is left of the session then."""


import hosts as module
from session_support import LIMIT_S, LOCKSTEP, SAYS_THAT_IT_WAITS, OnHosts


class Ends(OnHosts):
    def waiting(self, *options, then=(), **more):
        """A session in whose cell all ranks wait for the file `go`. `then`: cells behind it."""
        self.go = self.hosts.folder / "go"
        self.go.unlink(missing_ok=True)
        cell = f'#include <unistd.h>\n{SAYS_THAT_IT_WAITS}while (::access("{self.go}", 0)) ::usleep(1000);\ndist::barrier();'
        process = self.start([cell, "rank", *then], *options, **more)
        self.read_until_it_waits(process)
        return process

    def goes_on(self, process):
        self.go.touch()
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 0, output)
        self.assertIn("0   = 0\n1   = 1\n2   = 2\n3   = 3\n", output)

    def test_the_sshd_that_listens(self):
        """It has nothing to do with connections that are there; new ones are refused."""
        process = self.waiting("--hosts", "node1,node2")
        node2 = self.hosts["node2"]
        self.sshd.daemons["node2"].kill()
        self.sshd.daemons["node2"].wait()
        output = self.run_cells(["1"], code=3)
        self.assertIn("Connection refused", output)
        self.assertIn("the session could not start: host node2: its relay ended (ssh exited with code 255)", output)
        self.goes_on(process)
        self.sshd.start(node2)
        self.assert_nothing_is_left()

    def test_a_relay(self):
        """Its ranks end with it, and it has told nobody what it leaves: files, which go by hand."""
        process = self.waiting("--hosts", "node1,node2", "--keep-going")
        node2 = self.hosts["node2"]
        self.kill(node2, ".*/lockstep relay --hub")
        self.go.touch()
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 5, output)
        self.assertIn("0   = 0\n1   = 1\n", output)
        self.wait_until(lambda: all(each.startswith("/run/user/0/lockstep/") for each in self.left_on(node2)),
                        lambda: self.left_on(node2))
        node2.run(LOCKSTEP, "sessions", "clean")
        self.assert_nothing_is_left()

    def test_the_slurmd_of_a_node(self):
        self.hosts_with_slurm()
        process = self.waiting(command=("salloc", "--quiet", "-N2"))
        node2 = self.hosts["node2"]
        self.kill(node2, "slurmd")
        self.goes_on(process)
        node2.run("slurmd")
        self.assert_nothing_is_left()

    def test_an_srun(self):
        """Slurm keeps what it has started, and tells it nothing, until the allocation ends."""
        self.hosts_with_slurm()
        process = self.waiting("--keep-going", command=("salloc", "--quiet", "-N2"))
        self.kill(self.hosts.hub, "srun .*--nodelist=node2")
        self.go.touch()
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 5, output)
        self.assertIn("ranks 2-3: exit in cell 1\n    the process can't be seen any more: host node2: its relay ended "
                      "(srun was killed by SIGKILL)", output)
        self.assertIn("0   = 0\n1   = 1\n", output)
        self.assert_nothing_is_left()

    def test_the_shell_in_an_allocation_that_stays(self):
        self.hosts_with_slurm()
        process = self.waiting(command=("salloc", "--quiet", "-N2", "sh", "-c", '"$@"; exec sleep 1000', "sh"))
        self.kill(self.hosts.hub, r"/\S*/lockstep run")
        self.assert_nothing_is_left(*self.hosts)
        self.hosts.hub.run(LOCKSTEP, "sessions", "clean")
        self.kill(self.hosts.hub, "sleep 1000")
        process.communicate()
        self.assert_nothing_is_left()


if __name__ == "__main__":
    module.main()
