"""What takes a minute, all of it at the same time: a cable that is out, a slurmstepd that is killed, and Slurm's limit of
time, in sessions over two hosts, and the cable under `lockstep attach`."""

import os
import shlex
import subprocess
import sys
import time

import hosts as module
import launchers
from session_support import LIMIT_S, LOCKSTEP, OnHosts

JOB = """
import sys
import lockstep
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
lockstep.attach()
print("ready", flush=True)
lockstep.breakpoint()
sys.stdin.read()
"""
BRIEF_S, LONGER_S = 1, 5  # for which a cable is out
MISSED_S = 10  # a silent host is missed after that
CPP = ('on_preempt([] { auto sum = torch::ones({1}); dist::all_reduce(sum); '
       'std::cout << "saved on " << rank << " of " << sum.item<int>() << "\\n"; });',
       '#include <unistd.h>\nif (rank == 0) std::cout << "waits" << std::endl;\nwhile (true) sleep(1);')
PYTHON = ('def save():\n    total = torch.ones(1)\n    dist.all_reduce(total)\n    print("saved on", rank, "of", int(total.item()))\n'
          'on_preempt(save)', 'import time\nif rank == 0: print("waits", flush=True)\nwhile True: time.sleep(1)')
LIMITS = {f"{language}-{name}": (cells, options)
          for language, cells in (("cpp", CPP), ("python", PYTHON))
          for name, options in (("limit", ["--time=1"]), ("signal", ["--time=2", "--signal=USR2@100"]))}


class Outages(OnHosts):
    names = ("node1", "node2", "node3", "node4")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.remember_traces(cls)
        cls.has_slurm = not launchers.missing(cls.hosts, *launchers.Slurm.programs)
        if not cls.has_slurm:
            return
        launchers.Slurm(cls.hosts)
        cls.remember_traces(cls)
        hub = cls.hosts.hub
        cls.said = {}
        for name, (cells, options) in LIMITS.items():
            suffix, mark, python = (("cpp", "// %%", []) if cells is CPP else ("py", "# %%", [f"--python={sys.executable}"]))
            session, script, said = (cls.hosts.folder / f"{name}.{each}" for each in (suffix, "sh", "said"))
            session.write_text("".join(f"{mark}\n{cell}\n" for cell in cells))
            run = shlex.join([LOCKSTEP, "run", "-n", "2", *python, str(session)])
            script.write_text(f"#!/bin/sh\n{run}\necho it ended\n")
            said.write_text("")
            hub.run("sbatch", "-N2", "-w", "node3,node4", *options, "-o", said, script)
            cls.said[name] = said

    def setUp(self):
        """The traces are those before the batch jobs."""

    def start_job(self):
        """Four ranks that are stopped at a breakpoint, and a prompt over them on the hub."""
        script = self.hosts.folder / "train.py"
        script.write_text(JOB)
        variables = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500",
                     "OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        ranks = [self.hosts[f"node{1 + rank // 2}"].start(
            sys.executable, script, env={**variables, "RANK": str(rank), "LOCAL_RANK": str(rank % 2)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(4)]
        self.addCleanup(lambda: [(each.kill(), each.communicate()) for each in ranks if each.poll() is None])
        for each in ranks:
            self.read_until(each, "ready\n")
        return ranks

    def start_without_stepd(self):
        """A session on node3 and node4, where Slurm's part is gone: srun is not told."""
        cell = '#include <unistd.h>\nif (rank == 0) std::cout << "waits" << std::endl;\nif (rank == 1) pause();\ndist::barrier();'
        process = self.start([cell, "%%rank 0\nrank"], "--keep-going", ranks="2",
                             command=("salloc", "--quiet", "-J", "victim", "-N2", "-w", "node3,node4"))
        self.read_until_it_waits(process)
        job = self.hosts.hub.run("squeue", "-h", "-n", "victim", "-o", "%i").strip()
        self.kill(self.hosts["node4"], rf"slurmstepd: \[{job}\.")
        return process

    def test_a_cable_and_a_slurmstepd(self):
        """Out for 1 s and 5 s nobody notices; for more than 10 s it is said; after 60 s the host's ranks are lost."""
        node2, go = self.hosts["node2"], self.hosts.folder / "go"
        victim = self.start_without_stepd() if self.has_slurm else None
        ranks = self.start_job()
        session = self.terminal("-n", "4", "--hosts", "node1,node2")
        prompt = self.terminal("attach", "--hosts", "node1,node2")
        session.settle()
        prompt.settle()
        session.type('#include <unistd.h>')
        session.settle()
        for seconds in (BRIEF_S, LONGER_S):
            go.unlink(missing_ok=True)
            begin = time.monotonic()
            session.type(f'std::cout << "begins" << std::endl; while (::access("{go}", 0)) ::usleep(1000); '
                         'auto sum = torch::ones({1}) * rank; dist::all_reduce(sum); sum.item<int>()')
            session.wait_for_text("0-3 │ begins\n")
            prompt.type(f"import os; print('begins', flush=True)\nwhile not os.path.exists('{go}'): pass\n\n")
            prompt.wait_for_text("0-3 │ begins\n")
            node2.cut()
            time.sleep(seconds)
            node2.restore()
            go.touch()
            session.wait_for_text("0-3 = 6\n")
            said = session.settle(set(range(4))) + prompt.settle(set(range(4)))
            if time.monotonic() - begin < MISSED_S:  # else this machine is slow, and it may be true
                self.assertNotIn("no word", said)
            self.assertNotIn("✗", said)
            self.assertNotIn("can't be seen any more", said)
        node2.cut()
        for each in (session, prompt):
            each.wait_for_text("host node2: no word for ")
        node2.restore()
        for each in (session, prompt):
            each.wait_for_text("host node2 answers again")
            each.settle(set(range(4)))
        node2.cut()
        self.addCleanup(node2.restore)
        for each in (session, prompt):
            each.wait_for_text("can't be seen any more: ")
            said = each.settle({0, 1})
            each.type("rank")
            said += each.settle()
            self.assertRegex(said, r"\n✗ rank 2: exit\n    .*can't be seen any more: .*no word for \d+ s")
            self.assertIn("\n0   = 0\n1   = 1\n", said)
        node2.restore()
        for each in (session, prompt):
            each.send("\x04")
            each.wait_end()
        if victim:
            output, _ = victim.communicate(timeout=LIMIT_S)
            self.assertEqual(victim.returncode, 5, output)
            self.assertRegex(output, r"host node4: no word for \d+ s")
            self.assertRegex(output, r"rank 1: exit in cell 1\n    the process can't be seen any more: host node4: no word for \d+ s")
            self.assertIn("0   = 0\n", output)
        for each in ranks:
            each.communicate("")
        node2.run(LOCKSTEP, "sessions", "clean")
        self.assert_nothing_is_left(self.hosts["node1"], node2)
        # What batch jobs have is there until they end: test_a_limit_of_time.

    def test_a_limit_of_time(self):
        """Slurm ends the job, or says before that it will: ranks save what they have, in C++ and in Python."""
        if not self.has_slurm:
            self.skipTest("Slurm is missing: tests/hosts/packages.py gets it")
        for name, said in self.said.items():
            with self.subTest(name=name):
                self.wait_until(lambda: "(exit code 130)\n" in said.read_text(), said.read_text)
                output = said.read_text()
                says = (r"SIGUSR2: .*job \d+.*; \d+ s are left" if "signal" in name else
                        r"SIGTERM: Slurm ends job \d+, which has run for .* and may for 00:01:00: its limit is over, or it was "
                        r"cancelled; \d+ s are left")
                self.assertRegex(output, says)
                for rank in range(2):
                    self.assertIn(f"saved on {rank} of 2\n", output)
        self.assert_nothing_is_left(self.hosts["node3"], self.hosts["node4"])


if __name__ == "__main__":
    module.main()
