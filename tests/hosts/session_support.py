"""Sessions over two hosts, for their tests."""

import pathlib
import re
import subprocess
import sys
import time
import unittest

import launchers
from hosts import BUILD, TREE, Hosts

sys.path.insert(0, str(TREE / "tests" / "support"))
from typed_session import TypedSession  # noqa: E402

LOCKSTEP = str(BUILD / "bin" / "lockstep")
LIMIT_S = 240  # ends what hangs; judges nothing
SAYS_THAT_IT_WAITS = 'if (rank == 0) std::cout << "waits" << std::endl;\n'


class OnHosts(unittest.TestCase):
    names, clocks = ("node1", "node2"), {}  # of hosts.Hosts

    @classmethod
    def setUpClass(cls):
        cls.hosts = cls.enterClassContext(Hosts(*cls.names, **cls.clocks))
        if missing := launchers.missing(cls.hosts, *launchers.Sshd.programs):
            raise unittest.SkipTest(missing)
        cls.sshd = launchers.Sshd(cls.hosts)

    def setUp(self):
        self.remember_traces()

    def remember_traces(self):
        """What there is of programs before the test's sessions."""
        self.before = {host.name: host.traces() for host in self.hosts.by_name.values()}

    def hosts_with_slurm(self):
        if missing := launchers.missing(self.hosts, *launchers.Slurm.programs):
            self.skipTest(missing)
        if not hasattr(type(self), "slurm"):
            type(self).slurm = launchers.Slurm(self.hosts)
            self.remember_traces()

    def start(self, cells, *options, ranks="4", command=(), cwd=TREE):
        """Runs cells, or a script, from the hub."""
        script = cells
        if not isinstance(cells, pathlib.Path):
            mark, name = ("# %%", "cells.py") if any("--python" in str(each) for each in options) else ("// %%", "cells.cpp")
            script = self.hosts.folder / name
            script.write_text("".join(f"{mark}\n{cell}\n" for cell in cells))
        return self.hosts["hub"].start(*command, LOCKSTEP, "run", *(["-n", ranks] if ranks else []), *options, script, cwd=cwd,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True)

    def terminal(self, *options):
        """A session at which somebody types, on the hub."""
        variables = [f"{name}={value}" for name, value in {**self.hosts.hub.environment(), "TERM": "dumb"}.items()]
        session = self.hosts.hub.call(TypedSession, ["env", "-i", *variables, LOCKSTEP, *map(str, options)], {}, LIMIT_S)
        return self.enterContext(session)

    def run_cells(self, cells, *options, hosts="node1,node2", code=0, **more):
        process = self.start(cells, *(["--hosts", hosts] if hosts else []), *options, **more)
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, code, output)
        return output

    def left_on(self, host):
        """What a session has left there besides what is meant to stay, journals, caches and the folder of sessions:
        processes, files, ports, sockets."""
        meant = (*(str(self.hosts.home / each) for each in (".local", ".cache", ".ipython")), "/tmp/torchelastic_")  # torchrun's own
        left = host.traces() - self.before[host.name] - {"/run/user/0/lockstep"}
        return {each for each in left if not each.startswith(meant)}

    def assert_nothing_is_left(self, *hosts):
        end = time.monotonic() + LIMIT_S
        for host in hosts or self.hosts.by_name.values():
            while left := self.left_on(host):
                self.assertLess(time.monotonic(), end, f"{host.name}: {left}")
                time.sleep(0.05)

    def running(self, *options, then=()):
        """A session in whose cell the ranks of node1 wait for those of node2, which sleep."""
        cell = f"#include <unistd.h>\n{SAYS_THAT_IT_WAITS}if (node_rank == 1) pause();\ndist::barrier();"
        process = self.start([cell, *then], "--hosts", "node1,node2", *options)
        self.read_until_it_waits(process)
        return process

    def read_until_it_waits(self, process):
        return self.read_until(process, "waits\n")

    def read_until(self, process, words):
        said = [""]
        while words not in said[-1]:
            said.append(process.stdout.readline())
            self.assertTrue(said[-1], "".join(said))
        return "".join(said)

    def kill(self, host, pattern):
        host.run("kill", "-9", *(pid for pid, line in host.processes().items() if re.match(pattern, line)))

    def wait_until(self, is_true, says):
        """`says`: what the failure says."""
        end = time.monotonic() + LIMIT_S
        while not is_true():
            self.assertLess(time.monotonic(), end, says())
            time.sleep(0.05)
