"""What hosts.py promises of its hosts."""

import os
import pathlib
import select
import subprocess
import sys
import time
import unittest

import hosts as module
from hosts import Hosts

HERE = pathlib.Path(__file__).resolve().parent
SERVE = """
import socket
server = socket.create_server(("", 5000))
print("ready", flush=True)
while True:
    connection = server.accept()[0]
    connection.sendall(socket.gethostname().encode())
    connection.close()
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000), timeout=float(sys.argv[2])) as connection:
    print(connection.recv(99).decode())
"""
# Two hosts with a process that has left its group, and nobody who ends them.
LEFT_ALONE = f"""
import sys, time
sys.path.insert(0, {str(HERE)!r})
from hosts import Hosts
hosts = Hosts("node1", "node2")
for host in hosts:
    host.start("setsid", "--fork", "sleep", "1000").wait()
print(hosts.folder, *(host.init for host in hosts), flush=True)
time.sleep(1000)
"""


class OneSet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = cls.enterClassContext(Hosts("node1", "node2"))
        cls.node1, cls.node2 = cls.hosts
        cls.server = cls.node2.start(sys.executable, "-c", SERVE, stdout=subprocess.PIPE, text=True)
        assert cls.server.stdout.readline() == "ready\n"

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.server.communicate()

    def ask(self, name="node2", limit_s=60):
        return self.node1.run(sys.executable, "-c", ASK, name, limit_s, check=False)

    def test_hosts_have_names_and_folders_of_their_own(self):
        for host in self.hosts:
            host.run("sh", "-c",
                     "for folder in /tmp /run /dev/shm /etc /var/tmp; do hostname > $folder/test-of-hosts; done")
        for host in self.hosts:
            self.assertEqual(host.run("hostname"), f"{host.name}\n")
            for folder in module.OWN_FOLDERS + ("/etc", "/var/tmp"):
                self.assertEqual((host.root / folder[1:] / "test-of-hosts").read_text(), f"{host.name}\n")
                self.assertFalse(os.path.exists(f"{folder}/test-of-hosts"), "it is the machine's")
        (self.hosts.folder / "shared").write_text("by all")
        self.assertEqual([host.run("cat", self.hosts.folder / "shared") for host in self.hosts], ["by all"] * 2)

    def test_hosts_see_their_processes_only(self):
        self.assertIn(SERVE.splitlines()[1], str(self.node2.processes()))
        self.assertNotIn(SERVE.splitlines()[1], str(self.node1.processes()))
        self.assertNotIn("defunct", self.node1.run("sh", "-c", "(true &); ps ax"), "orphans stay")

    def test_standard_input_and_output_are_pipes(self):
        with self.node1.start("sh", "-c", "read word; echo got $word; exec cat", stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as process:
            process.stdin.write("this\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "got this\n")
            process.kill()
        self.assertEqual(process.returncode, -9)
        self.assertNotIn("read word", str(self.node1.processes()))

    def test_a_cable_is_taken_out_and_put_back(self):
        self.assertEqual(self.ask(), "node2\n")
        self.node2.cut()
        self.assertEqual(self.ask(limit_s=1), "")
        self.node2.restore()
        self.assertEqual(self.ask(), "node2\n")

    @unittest.skipUnless(module.packages_folder(), "needs nft, of Debian's nftables: tests/hosts/packages.py gets it")
    def test_a_firewall(self):
        for port in (5000, None):
            self.node2.drop(port)
            self.assertEqual(self.ask(limit_s=1), "")
            self.node2.accept()
            self.assertEqual(self.ask(), "node2\n")
        self.node2.drop(5001)
        self.assertEqual(self.ask(), "node2\n")
        self.node2.accept()

    def test_a_disk_that_is_full(self):
        self.node1.run("mkdir", "/var/small")
        self.node1.small_disk("/var/small", 65536)
        self.node1.fill("/var/small")
        self.assertEqual(self.node1.run("sh", "-c", "echo more > /var/small/file || echo refused"), "refused\n")
        self.node2.run("sh", "-c", "mkdir /var/small && echo more > /var/small/file")

    def test_another_user(self):
        self.assertEqual(self.node1.run("id", "-u", user="nobody", group="nogroup", extra_groups=[]),
                         f"{self.node1.run('id', '-u', 'nobody')}")


class OwnSets(unittest.TestCase):
    def test_names_that_do_not_resolve(self):
        with Hosts("node1", "node2", names_resolve=False) as hosts:
            name = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
            self.assertEqual(hosts["node1"].run(sys.executable, "-c", name, "node1"), "10.9.0.11\n")
            self.assertEqual(hosts["node1"].run(sys.executable, "-c", name, "node2", check=False), "")

    def test_a_clock_that_is_ahead(self):
        with Hosts("node1", "node2", monotonic_s={"node2": 3600}, time_of_day_s={"node2": 3600}) as hosts:
            clocks = "import time; print(time.monotonic(), time.time())"
            for node1, node2 in zip(*[host.run(sys.executable, "-c", clocks).split() for host in hosts]):
                self.assertGreater(float(node2) - float(node1), 3500)
            uptime = float(hosts["node2"].run("cat", "/proc/uptime").split()[0])  # by which ages of processes are told
            self.assertGreater(uptime, 3600)

    def test_a_host_without_power(self):
        with Hosts("node1", "node2") as hosts:
            process = hosts["node2"].start("sleep", "1000")
            hosts["node2"].power_off()
            self.assertEqual(process.wait(), -9)
            self.assertEqual(hosts["node1"].run("hostname"), "node1\n")

    def test_nothing_is_left_of_a_test_that_is_killed(self):
        with subprocess.Popen([sys.executable, "-c", LEFT_ALONE], stdout=subprocess.PIPE, text=True) as test:
            folder, *inits = test.stdout.readline().split()
            ends = [os.pidfd_open(int(each)) for each in inits]
            test.kill()
        for end in ends:  # of a process 1, with which its host ends
            self.assertTrue(select.select([end], [], [], 60)[0])
            os.close(end)
        deadline = time.monotonic() + 60
        while os.path.exists(folder):
            self.assertLess(time.monotonic(), deadline, folder)
            time.sleep(0.01)


if __name__ == "__main__":
    module.main()
