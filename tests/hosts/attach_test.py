"""`lockstep attach` to a job with two ranks on each of two hosts: one prompt over all of them."""

import json
import os
import pathlib
import pwd
import re
import signal
import subprocess
import sys
import unittest

import hosts as module
import launchers
from hosts import BUILD, Hosts

PYTHON_TESTS = pathlib.Path(__file__).resolve().parents[1] / "python"
LIMIT_S = 120
ATTACH = [str(BUILD / "bin" / "lockstep"), "attach"]
JOB = """
import contextlib, os, socket, sys, time
import lockstep
import torch
import torch.distributed as dist

dist.init_process_group("lockstep" if "logged" in sys.argv else "gloo")
rank = dist.get_rank()
lockstep.attach()
weights = torch.full((3,), float(rank))
print("ready", flush=True)
sys.stdin.readline()
if rank == 3 and "hang" in sys.argv:
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(1000)  # the culprit
step, trains = 0, "steps" in sys.argv
while trains:
    dist.all_reduce(torch.ones(2))
    step += 1
    lockstep.step()
    time.sleep(0.01)
if "hang" in sys.argv:
    try:
        dist.all_reduce(torch.ones(2))
    except RuntimeError:
        sys.stdin.readline()
        dist.destroy_process_group()
        dist.init_process_group("gloo", init_method=f"file://{__file__}-again", rank=rank, world_size=4)
    else:
        sys.exit("the collective went on")
elif "steps" not in sys.argv:
    lockstep.breakpoint()
dist.barrier()
print("rank", rank, "is done")
"""
VARIABLES = {"NNODES": "2", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500",
             "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


def ranks_of(text):
    """Those of 0-1,3."""
    ends = [each.split("-") for each in text.split(",")]
    return [rank for first, *last in ends for rank in range(int(first), int(last[0] if last else first) + 1)]


class Attach(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Clocks may be of another time, and all the same holds.
        cls.hosts = cls.enterClassContext(Hosts("node1", "node2", monotonic_s={"node2": 3600}))
        if missing := launchers.missing(cls.hosts, *launchers.Sshd.programs):
            raise unittest.SkipTest(missing)
        launchers.Sshd(cls.hosts)
        cls.script = cls.hosts.folder / "train.py"
        cls.script.write_text(JOB)

    def start(self, *arguments):
        """The ranks, once each has a group."""
        ranks = [self.hosts[f"node{1 + rank // 2}"].start(
            sys.executable, self.script, *arguments, env={**VARIABLES, "RANK": str(rank), "LOCAL_RANK": str(rank % 2)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(4)]
        self.addCleanup(lambda: [(each.kill(), each.communicate()) for each in ranks if each.poll() is None])
        for each in ranks:
            said = [each.stdout.readline()]
            while said[-1] != "ready\n":
                self.assertTrue(said[-1], f"a rank did not start: {''.join(said)}")
                said.append(each.stdout.readline())
        self.go_on(ranks)
        return ranks

    def go_on(self, ranks):
        for each in ranks:
            each.stdin.write("\n")
            each.stdin.flush()

    def assert_done(self, ranks):
        for rank, each in enumerate(ranks):
            output, _ = each.communicate(timeout=LIMIT_S)
            self.assertEqual(each.returncode, 0, output)
            self.assertEqual(output.splitlines()[-1], f"rank {rank} is done")

    def attach(self, host, cells, *options, code=0, **more):
        """Runs the cells at the prompt of the job, and returns what is shown."""
        return self.end_attach(self.begin_attach(host, cells, *options, **more), code)

    def begin_attach(self, host, cells, *options, path=None, command=()):
        file = self.hosts.folder / "cells.py"
        file.write_text("# %%\n" + "\n# %%\n".join(cells) + "\n")
        env = {"PATH": f"{path}:{module.path()}"} if path else {}
        return self.hosts[host].start(*command, *ATTACH, *options, "--run", file, env=env, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end_attach(self, process, code=0):
        output, _ = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, code, output)
        return output

    def test_cells_on_all_ranks(self):
        ranks = self.start()
        output = self.attach("hub", ["import socket\n(rank, socket.gethostname(), weights.sum().item())",
                                     "%%rank 2\nrank * 10",
                                     "weights.fill_(7.0)\nNone",
                                     "%verify weights",
                                     "%dist_status"], "--hosts", "node1,node2")
        for rank, host in enumerate(("node1", "node1", "node2", "node2")):
            self.assertIn(f"= ({rank}, '{host}', {3.0 * rank})", output)
        self.assertIn("2   = 20\n", output)
        self.assertIn("weights: equal on ranks 0-3", output)
        self.assert_done(ranks)

    def test_cpp_cells_where_no_home_is_shared(self):
        # What all C++ cells begin with is in the cache of the home.
        preludes = [str(each.parent) for each in module.CACHE.glob("lockstep/**/libprelude.so")]
        if not preludes:
            self.skipTest("there is nothing to hide: no C++ cell of Python has run before")
        for node in ("node1", "node2"):
            for folder in preludes:
                self.hosts[node].small_disk(folder, "64k")
                self.addCleanup(self.hosts[node].run, "umount", folder)
        ranks = self.start()
        output = self.attach("hub", ["%%cpp\nint many = 3;", "%%cpp\nmany + rank"], "--hosts", "node1,node2")
        self.assertIn("0   = 3\n1   = 4\n2   = 5\n3   = 6\n", output)
        self.assert_done(ranks)

    def test_a_job_that_hangs(self):
        ranks = self.start("hang")
        output = self.attach("node1", ["%hang", "%stack", "%collectives", "%dist_status", "%abort",
                                       "%abort --yes", "1 + 1"], "--hosts", "node2", code=2)
        self.assertIn("ranks 0-2 wait in all_reduce #1 of default_pg float32 [2]", output)
        self.assertIn("which rank 3 has not called; rank 3 sleeps", output)
        self.assertRegex(output, r"\nrank 3\n  Python\n    .*/train.py, line \d+, in <module>\n")
        self.assertRegex(output, r"default_pg +1 .*all_reduce \[2\] float32  scheduled  -\n")
        self.assertRegex(output, r"\n3     away   \d+ +node2 ")
        self.assertIn("%abort --yes ends the connections of all process groups of ranks 0-3", output)
        ended = re.findall(r"^ranks? (.*): \d connections? of Gloo ended$", output, re.MULTILINE)
        self.assertEqual({rank for each in ended for rank in ranks_of(each)}, {0, 1, 2, 3}, output)
        self.assertIn("rank 0 counts no training steps", output, "the last cell can't run")
        ranks[3].send_signal(signal.SIGINT)
        self.go_on(ranks)
        self.assert_done(ranks)  # in a new group: the collective has raised an exception on each

    def test_a_rank_that_dies_elsewhere(self):
        self.start()
        output = self.attach("hub", ["%%rank @node2\nrank", "%%rank host:node2,^2\nimport os; os.kill(os.getpid(), 9)",
                                     "%%rank @node3\nrank", "rank"], "--keep-going", "--hosts", "node1,node2", code=5)
        self.assertIn("2   = 2\n3   = 3\n", output)
        self.assertIn("rank 3: SIGKILL in cell 2\n    was killed by SIGKILL\n", output)
        self.assertIn("no rank is on host 'node3': the ranks are on node1, node2", output)
        self.assertIn("0   = 0\n1   = 1\n2   = 2\n", output)

    def test_who_is_kept_out(self):
        """A firewall is named, and what it keeps out is left out; another user of the hosts sees nothing and reaches nothing."""
        self.start("steps")
        node1, node2 = self.hosts
        node2.drop(22)
        self.addCleanup(node2.accept)
        begun = self.begin_attach("hub", ["%stop", "%dist_status"], "--keep-going", "--hosts", "node1,node2")

        def as_nobody(host, *command):
            process = self.hosts[host].start(
                *command, user="nobody", group=pwd.getpwnam("nobody").pw_gid, extra_groups=[], env={"XDG_RUNTIME_DIR": "", "HOME": "/tmp"},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            return process.communicate()[0]

        self.assertIn("no Python job of yours", as_nobody("node1", *ATTACH))
        self.assertIn("host node1: its relay ended (ssh exited with code 255)", as_nobody("hub", *ATTACH, "--hosts", "node1"))
        self.assertIn("Permission denied", as_nobody("node1", "ls", "/run/user/0/lockstep"))
        sockets = [each.removeprefix("socket ") for each in node1.traces() if each.startswith("socket /run/user/0/lockstep/")]
        self.assertEqual(len(sockets), 2, "each rank has an agent")
        connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        for each in sockets:
            self.assertIn("PermissionError", as_nobody("node1", "python3", "-c", connect, each))
        pids = [str(pid) for pid, line in node1.processes().items() if str(self.script) in line]
        for file in ("mem", "environ", "maps"):
            self.assertIn("Permission denied", as_nobody("node1", "head", "-c1", f"/proc/{pids[0]}/{file}"))
        self.assertIn("Operation not permitted", as_nobody("node1", "kill", "-INT", *pids))
        output = self.end_attach(begun, code=2)
        self.assertIn("host node2: its relay has not answered for 10 s\n", output)
        self.assertIn("ranks 2-3 can't be asked from here: they run on another machine", output)
        self.assertRegex(output, r"\n0     away   \d+ +node1 .*\n1     away   \d+ +node1 .*\n2     away ")

    def test_a_firewall_before_the_store(self):
        """The verdict says what the ranks of node2 do not reach, within `--hang-timeout` and the look after it."""
        node1 = self.hosts["node1"]
        node1.drop(29500)
        self.addCleanup(node1.accept)
        run = [*ATTACH[:1], "run", "--hang-timeout", "3"]
        launch = [str(PYTHON_TESTS / "launch.py"), "2", str(PYTHON_TESTS / "jobs" / "hangs.py"), "healthy"]
        jobs = [self.hosts[name].start(*run, *options, "--", sys.executable, *launch, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env={**VARIABLES, "NODE_RANK": str(number), "TORCHELASTIC_RUN_ID": self.id()})
                for number, (name, options) in enumerate((("node1", ["--hosts", "node2"]), ("node2", [])))]
        errors = [each.communicate(timeout=LIMIT_S)[1] for each in jobs]
        self.assertEqual([each.returncode for each in jobs], [4, 4], errors)
        self.assertRegex(errors[0], r"lockstep: the job has made no progress for [\d.]+ s; ending it\n")
        for rank in (2, 3):
            self.assertRegex(errors[0], rf"✗ hang: .*rank {rank} gets no answer from [\d.]+:29500, to which it connects")

    def test_a_timeline_has_one_clock(self):
        """No rank leaves a barrier before all have come."""
        self.start("logged")
        file = self.hosts.folder / "timeline.json"
        output = self.attach("hub", ["for _ in range(3): dist.barrier()", f"lockstep.timeline('{file}')"], "--hosts",
                             "node1,node2")
        self.assertRegex(output, "; clocks agree within ")
        trace = json.loads(file.read_text())
        error_us = trace["otherData"]["clock_error_s"] * 1e6
        self.assertLess(error_us, 60e6)
        barriers = [each for each in trace["traceEvents"] if each["name"].startswith("barrier")]
        numbers = {each["args"]["seq"] for each in barriers if "args" in each}
        self.assertEqual(len(numbers), 3)
        for number in numbers:
            spans = [[each["ts"] for each in barriers if each["id"] == begin["id"]] for begin in barriers
                     if begin.get("args", {}).get("seq") == number]
            self.assertEqual(len(spans), 4, barriers)
            self.assertLess(max(min(each) for each in spans), min(max(each) for each in spans) + 2 * error_us)

    def test_pods(self):
        folder = self.hosts.folder / "kubectl"
        folder.mkdir()
        stand_in = folder / "kubectl"
        stand_in.write_text('#!/bin/bash\n[ "$1 $2 $4" = "exec -i --" ] || exit 9\nexec ssh "$3" "${*:5}"\n')
        stand_in.chmod(0o755)
        ranks = self.start("steps")
        output = self.attach("hub", ["rank"], "--kubectl", "node1,node2", path=folder)
        self.assertIn("0   = 0\n1   = 1\n2   = 2\n3   = 3\n", output)
        output = self.attach("hub", ["%memory", "%stop", "%memory", "import socket\nsocket.gethostname()", "step",
                                     "trains = False", "%continue"], "--hosts", "node1,node2")
        self.assertIn("ranks 0-1: on node1, whose processes can't be read here", output)
        self.assertIn("process, resident", output)
        self.assertNotIn("resident (process", output)  # of this machine
        self.assertIn("0-1 = 'node1'\n2-3 = 'node2'\n", output)
        self.assertRegex(output, r"\n0-3 = \d+\n")
        self.assert_done(ranks)

    def test_a_job_of_slurm(self):
        if missing := launchers.missing(self.hosts, *launchers.Slurm.programs):
            self.skipTest(missing)
        launchers.Slurm(self.hosts)
        rank = f"RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec {sys.executable} -u {self.script} hang"
        step = self.hosts["hub"].start("srun", "-N2", "-n4", "sh", "-c", rank, env=VARIABLES, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(lambda: (step.terminate(), step.communicate()))
        said = []
        while said.count("ready\n") < 4:
            said.append(step.stdout.readline())
            self.assertTrue(said[-1], "".join(said))
        job = self.hosts["hub"].run("squeue", "-h", "-o", "%i").strip()
        output = self.attach("hub", ["%hang"], "--slurm", job)
        self.assertRegex(output, "✓ 4 ranks, Python job")
        self.assertIn("rank 3: sleeps", output)
        for command in (["env", f"SLURM_JOB_ID={job}", "SLURM_JOB_NUM_NODES=2"],
                        ["srun", "--overlap", f"--jobid={job}", "-N1", "-n1"]):
            output = self.attach("hub", ["%hang"], command=command)
            self.assertRegex(output, "✓ 4 ranks, Python job")
            self.assertIn("rank 3: sleeps", output)
        output = self.attach("hub", ["%hang"], "--slurm", "4711", code=3)
        self.assertIn("squeue", output)


if __name__ == "__main__":
    module.main()
