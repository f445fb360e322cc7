"""Kills at every moment of a prompt over a Python job: the launcher, a rank or the shell gets SIGKILL while ranks wait in a
breakpoint, while a shell attaches, in a cell, and after `continue`. Nothing may stay: no process, and after the next
listing no folder. A job whose shell is killed goes on.

This process forks the launchers, and they the ranks, so that torch is imported once."""

import atexit
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import lockstep
import torch.distributed as dist
from ranks import LOCKSTEP
from processes import children
from waiting import wait_until

PR_SET_CHILD_SUBREAPER = 36
STEPS = 3


def rank_main(folder, rank):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for step in range(STEPS):
        (folder / f"step-{rank}").write_text(str(step))
        lockstep.breakpoint()
    (folder / f"done-{rank}").touch()
    dist.destroy_process_group()


def fork(function):
    """A child that runs it and ends."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    return pid


def launch(folder):
    """Starts two ranks, and ends the other when one has failed, as launchers do."""
    os.environ.update(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1",
                      XDG_RUNTIME_DIR=str(folder), LOCKSTEP_BREAKPOINT_GRACE="0.2")

    def start(rank):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        os.setsid()
        with open(folder / "output", "ab") as output:
            for descriptor in (1, 2):
                os.dup2(output.fileno(), descriptor)
        rank_main(folder, rank)
        atexit._run_exitfuncs()  # as at the end of a program that was not forked
        ctypes.CDLL(None).exit(0)

    ranks = [fork(lambda rank=rank: start(rank)) for rank in range(2)]
    (folder / "ranks").write_text(" ".join(map(str, ranks)))
    failed = False
    while ranks:
        pid, status = os.wait()
        ranks.remove(pid)
        if status != 0 and not failed:
            failed = True
            for each in ranks:
                os.kill(each, signal.SIGTERM)


class Kills(unittest.TestCase):
    def setUp(self):
        # A socket's path is short. Not TemporaryDirectory: the ranks are forks, and would remove it at their end.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ls", dir="/tmp"))
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder)}
        self.shell = None
        self.launcher = fork(lambda: launch(self.folder))
        self.wait_for(lambda: len(self.output().split("waits in breakpoint")) == 3)
        (job,) = self.folder.glob("lockstep/job-*")
        self.attach_command = [LOCKSTEP, "attach", job.name.removeprefix("job-")]
        self.ranks = [int(each) for each in (self.folder / "ranks").read_text().split()]

    def tearDown(self):
        for child in children("self"):  # after a failure
            os.kill(child, signal.SIGKILL)
        self.wait_for(self.has_no_child)
        shutil.rmtree(self.folder)

    def output(self):
        path = self.folder / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, condition):
        wait_until(condition, self.output)

    def attach(self, until):
        """A shell, as far as `until`: starting, attached, in a cell, or after continue."""
        self.shell = subprocess.Popen(self.attach_command, env=self.environment,
                                      stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if until == "starting":
            self.wait_for(lambda: len(list(self.folder.glob("lockstep/*"))) > 1)  # its folder
            return
        mark = self.folder / "here"
        cell = f"import pathlib, time; pathlib.Path('{mark}-' + str(rank)).touch(); time.sleep({1000 * (until == 'cell')})"
        self.shell.stdin.write(cell.encode() + b"\n")
        self.shell.stdin.flush()
        self.wait_for(lambda: all((self.folder / f"here-{rank}").exists() for rank in range(2)))
        if until == "continue":
            self.shell.stdin.write(b"continue\n")
            self.shell.stdin.flush()
            self.wait_for(lambda: (self.folder / "step-0").read_text() == "1")

    def leave(self):
        """The shell's user leaves it, wherever it is."""
        if self.shell is not None and self.shell.poll() is None:
            self.shell.send_signal(signal.SIGTERM)
            try:
                self.shell.stdin.close()
            except BrokenPipeError:
                pass
        if self.shell is not None:
            self.shell.wait()

    def nothing_is_left(self):
        """Every process that came of this one has ended, and been waited for; a listing finds nothing."""
        self.wait_for(self.has_no_child)
        # Sessions of others that the user runs are listed, too.
        subprocess.run([LOCKSTEP, "sessions", "list"], env=self.environment, stdout=subprocess.DEVNULL, check=True)
        self.assertEqual(list(self.folder.glob("lockstep/*")), [])

    def has_no_child(self):
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return True
        return False

    def is_done(self):
        return [(self.folder / f"done-{rank}").exists() for rank in range(2)]

    def go_to(self, moment):
        if moment != "breakpoint":
            self.attach({"attach": "starting", "prompt": "attached"}.get(moment, moment))

    def kill_launcher(self, moment):
        self.go_to(moment)
        os.kill(self.launcher, signal.SIGKILL)
        self.leave()
        self.nothing_is_left()
        self.assertEqual(self.is_done(), [True, True], self.output())  # they go on: nobody will end them
        self.assertIn("its launcher has ended", self.output())

    def kill_rank(self, moment):
        self.go_to(moment)
        os.kill(self.ranks[1], signal.SIGKILL)
        self.leave()
        self.nothing_is_left()
        self.assertEqual(self.is_done(), [False, False])

    def kill_shell(self, moment):
        self.go_to(moment)
        self.shell.kill()
        self.shell.stdin.close()
        self.shell.wait()
        if moment == "cell":  # which runs to its end
            for rank in self.ranks:
                os.kill(rank, signal.SIGINT)
        said = len(self.output())
        # The ranks that it had go on after the stated time, and wait at the next breakpoint for another shell.
        had_ranks = moment in ("prompt", "cell")
        self.wait_for(lambda: self.output()[said:].count("waits in breakpoint") >= 2 or not had_ranks)
        subprocess.run(self.attach_command, env=self.environment, check=True, input=b"detach\n",
                       stdout=subprocess.DEVNULL)
        self.nothing_is_left()
        self.assertEqual(self.is_done(), [True, True], self.output())


for victim in ("launcher", "rank", "shell"):
    for moment in ("breakpoint", "attach", "prompt", "cell", "continue"):
        if (victim, moment) != ("shell", "breakpoint"):
            def test(self, victim=victim, moment=moment):
                getattr(self, f"kill_{victim}")(moment)

            setattr(Kills, f"test_{victim}_at_{moment}", test)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children of this process
    unittest.main(argv=sys.argv)
