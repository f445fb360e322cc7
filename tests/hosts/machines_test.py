"""Sessions over two hosts of which one lacks something, or that are not alike: disks, clocks, networks, GPUs."""

import json
import pathlib
import re
import subprocess
import sys

import hosts as module
import launchers
from hosts import BUILD
from session_support import OnHosts

NETWORK = "10.8.0."
PLUGIN = BUILD / "lib" / "libstand_in_plugin.so"  # tests/support/stand_in_plugin.cpp
RUNTIME = "/run/user/0"


class Machines(OnHosts):
    def give(self, **variables):
        """The environment of what ssh starts on the nodes, until the end of the test."""
        words = " ".join(f"{name}={value}" for name, value in variables.items())
        for host in self.hosts:
            config = (host.root / "etc/ssh/sshd_config").read_text()
            self.configure(host, config.replace("\nSetEnv ", f"\nSetEnv {words} "))
            self.addCleanup(self.configure, host, config)

    def configure(self, host, config):
        """sshd reads it again, and says so."""
        launchers.write(host, "/etc/ssh/sshd_config", config)
        daemon = self.sshd.daemons[host.name]
        host.run("pkill", "-HUP", "-o", "-x", "sshd")
        said = ""
        while "Server listening" not in said:
            line = daemon.stderr.readline()
            self.assertTrue(line, said)
            said += line

    def test_a_full_disk(self):
        """A cell that needs space fails, and the session goes on."""
        node2 = self.hosts["node2"]
        node2.small_disk(RUNTIME, 20 << 20)
        self.addCleanup(node2.run, "umount", RUNTIME)
        session = self.terminal("-n", "4", "--hosts", "node1,node2")
        session.type("int kept = rank + 7;")
        session.settle()
        node2.fill(RUNTIME)
        session.type("kept + 1")
        said = session.settle()
        self.assertRegex(said, rf"\nnode2 can't write {RUNTIME}/lockstep/.*: No space left on device\n✗ ranks 2-3: ")
        session.type("%%rank 0-1\nkept + 2\n")
        self.assertIn("0   = 9\n1   = 10\n", session.settle())
        node2.run("rm", f"{RUNTIME}/filler")
        session.type("kept + 1")
        self.assertIn("0   = 8\n1   = 9\n2   = 10\n3   = 11\n", session.settle())
        session.send("\x04")
        self.assertEqual(session.wait_end(), 0)
        node2.fill(RUNTIME)
        for options in ((), (f"--python={sys.executable}",)):
            output = self.run_cells(["1"], *options, code=3)
            self.assertIn("the session could not start: host node2: ranks have nowhere to come to: ", output)
            self.assertIn("No space left on device; make room there, or set XDG_RUNTIME_DIR", output)
        node2.run("rm", f"{RUNTIME}/filler")
        self.assert_nothing_is_left()

    def test_a_second_network(self):
        """The hosts choose it; the session shows what was chosen."""
        cables = "link add ib type bridge\nlink set ib up\n"
        for number in (0, 1):
            cables += f"link add ib{number} type veth peer name ib{number}n\nlink set ib{number} master ib up\n"
        hub = self.hosts.hub
        hub.run("ip", "-batch", "-", input=cables)
        for number, host in enumerate(self.hosts):
            subprocess.run(["nsenter", f"--net=/proc/{hub.init}/ns/net", "ip", "link", "set", f"ib{number}n", "netns",
                            str(host.init)], check=True)
            host.run("ip", "-batch", "-", input=f"link set ib{number}n name ib0\nlink set ib0 up\n"
                                                f"addr add {NETWORK}{10 + number}/24 dev ib0\n")
        cell = ('auto sum = torch::ones({1}) * rank; dist::all_reduce(sum);\n'
                'std::string(getenv("GLOO_SOCKET_IFNAME")) + " " + getenv("NCCL_SOCKET_IFNAME")')
        output = self.run_cells([cell])
        self.assertIn("ranks 0-1 are on node1 by eth0\nranks 2-3 are on node2 by eth0\n", output)
        self.assertIn('0-3 = "eth0 eth0"\n', output)
        self.give(GLOO_SOCKET_IFNAME="ib0")
        output = self.run_cells([cell])
        self.assertIn("ranks 0-1 are on node1 by ib0\nranks 2-3 are on node2 by ib0\n", output)
        self.assertIn(f"The store of the session is at {NETWORK}10:", output)
        self.assertIn('0-3 = "ib0 ib0"\n', output)
        self.give(GLOO_SOCKET_IFNAME="ib1")
        self.assertIn("GLOO_SOCKET_IFNAME=ib1: node1 has no such interface that is up", self.run_cells([cell], code=3))

    def test_gpus(self):
        """Each host has ranks for its GPUs. They are a stand-in's, as is NCCL."""
        if not PLUGIN.exists():
            self.skipTest(f"needs {PLUGIN}, of the tests of workers")
        cache = (BUILD / "CMakeCache.txt").read_text()
        real = pathlib.Path(re.search(r"^LibTorch_ROOT:PATH=(.*)$", cache, re.MULTILINE)[1])
        torch = self.hosts.folder / "torch"
        (torch / "lib").mkdir(parents=True)
        for each in real.iterdir():
            if each.name != "lib":
                (torch / each.name).symlink_to(each)
        for each in (real / "lib").iterdir():
            (torch / "lib" / each.name).symlink_to(each)
        (torch / "lib" / "libtorch_cuda.so").touch()
        for host, gpus in zip(self.hosts, (2, 1)):
            host.run("mount", "-t", "tmpfs", "driver", "/proc/driver")
            self.addCleanup(host.run, "umount", "/proc/driver")
            host.run("mkdir", "-p", *(f"/proc/driver/nvidia/gpus/{number}" for number in range(gpus)))
        self.give(LOCKSTEP_LIBTORCH=torch, LOCKSTEP_PLUGIN=PLUGIN)
        output = self.run_cells(['getenv("CUDA_VISIBLE_DEVICES")', "%dist_status"], ranks=None)
        self.assertIn("✓ 3 ranks, ", output)
        self.assertIn("ranks 0-1 are on node1 by eth0\nrank 2 is on node2 by eth0\n", output)
        self.assertIn('0,2 = "0"\n1   = "1"\n', output)  # a rank sees its own GPU alone
        self.assertRegex(output, r"\n1     idle +\d+ +node1  cuda:0 .*\n2     idle +\d+ +node2  cuda:0 ")
        self.hosts["node2"].run("rmdir", "/proc/driver/nvidia/gpus/0")
        output = self.run_cells(["1"], ranks=None, code=2)
        self.assertIn("host node2 has no GPU that sessions can use, and others have: leave it out, or say how many ranks "
                      "there are with -n", output)


class Clocks(OnHosts):
    """An hour apart, by the time of day and by what runs since the start."""
    clocks = {"monotonic_s": {"node2": 3600}, "time_of_day_s": {"node2": 3600}}

    def test_a_session(self):
        """Times are those of the login node's clock, and nothing is late or early."""
        trace = self.hosts.folder / "trace.json"
        cells = ["auto sum = torch::ones({1}) * rank; for (int i = 0; i < 3; ++i) dist::all_reduce(sum); sum.item<int>()",
                 f"%timeline {trace}", "#include <unistd.h>\nif (rank == 0) ::sleep(3);\ndist::barrier();",
                 "if (rank != 3) dist::barrier();", "#include <signal.h>\nif (rank == 3) raise(SIGKILL);", "%restart",
                 "int after = rank;\nafter"]
        output = self.run_cells(cells, "--keep-going", code=4)
        self.assertRegex(output, r"; clocks agree within \d+(\.\d+)? [mµ]s")
        waits = re.findall(r"• ranks? ([\d,-]+): waits? (\S+) s in barrier #4 .* for rank 0", output)
        self.assertTrue(any("3" in ranks for ranks, _ in waits), output)
        for _, seconds in waits:
            self.assertLess(float(seconds), 100, output)
        self.assertIn("hang: ranks 0-2 wait in barrier #5 (cell 4, line 1), and rank 3 has finished without entering it", output)
        self.assertIn("rank 3: SIGKILL in cell 5", output)
        self.assertIn("rank 3 is back: ", output)
        self.assertIn("0   = 0\n1   = 1\n2   = 2\n3   = 3\n", output)
        found = json.loads(trace.read_text())
        error_us = found["otherData"]["clock_error_s"] * 1e6
        calls = [each for each in found["traceEvents"] if each["name"].startswith("all_reduce")]
        for number in (1, 2, 3):  # no rank ends before all have begun
            begins = [each for each in calls if each.get("args", {}).get("seq") == number]
            ends = [max(each["ts"] for each in calls if each["id"] == begin["id"]) for begin in begins]
            self.assertEqual(len(begins), 4, calls)
            self.assertLess(max(each["ts"] for each in begins), min(ends) + 2 * error_us)


if __name__ == "__main__":
    module.main()
