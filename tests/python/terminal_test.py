"""The prompt over a Python job in a real terminal: that of `lockstep run -- LAUNCHER`, and that of `lockstep attach`."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from ranks import HERE, LOCKSTEP, environment, launcher
from processes import children
from tmux import PROMPT, Terminal
from waiting import wait_until


class JobInTerminal(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="ls", dir="/tmp", ignore_cleanup_errors=True)  # a socket's path is short
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def command(self, mode, script="prompt.py"):
        return [*launcher(2), str(HERE / "jobs" / script), str(self.folder), mode]

    def environment(self, **more):
        return environment(XDG_RUNTIME_DIR=str(self.folder), XDG_STATE_HOME=str(self.folder), **more)

    def show(self, command, **more):
        """`command` in a terminal; its output is all of the screen's history."""
        self.code = self.folder / "code"
        self.code.unlink(missing_ok=True)
        # tmux does not always know the exit code.
        words = ["sh", "-c", f'trap : INT; "$@"; echo $? > {self.code}.new; mv {self.code}.new {self.code}', "sh", *command]
        self.terminal = Terminal(words, 300, 50, self.environment(PS1="", **more))
        self.addCleanup(self.terminal.close)
        return self.terminal

    def wait_for(self, pattern):
        """As Terminal.wait_for; fails where the program ends before."""
        screen = self.terminal.wait_for(f"{pattern}|^Pane is dead", history=True)
        if not re.search(pattern, screen, re.MULTILINE):
            raise AssertionError(f"{pattern!r} did not come up; on the screen:\n{screen}")
        return self.terminal.screen()

    def wait_for_end(self):
        """Returns the exit code of what ran in the terminal."""
        wait_until(self.code.exists, lambda: self.terminal.screen(history=True))
        return int(self.code.read_text())

    def results(self):
        return [json.loads((self.folder / f"rank-{rank}.json").read_text()) for rank in range(2)]

    def rank_file(self, rank):
        (path,) = self.folder.glob(f"lockstep/job-*/rank-{rank}.json")
        return json.loads(path.read_text())


class Run(JobInTerminal):
    def test_the_prompt_opens_at_each_breakpoint(self):
        terminal = self.show([LOCKSTEP, "run", "--hang-timeout", "1", "--", *self.command("every")])
        screen = self.wait_for(PROMPT.format(1))
        self.assertRegex(screen, r"ranks 0-1: stopped at .*prompt\.py, line \d+, in train")
        self.terminal.enter("step, rank")
        self.wait_for(PROMPT.format(2))
        self.assertIn("0   = (0, 0)\n1   = (0, 1)\n", terminal.screen())
        self.terminal.enter("import time; print('sleeps'); time.sleep(1000)")
        self.wait_for("│ sleeps$")
        terminal.press("C-c")  # interrupts the cell, and not the job
        self.wait_for(PROMPT.format(3))
        self.assertIn("interrupted", terminal.screen())
        self.terminal.enter("time.sleep(2)")  # longer than the watch allows a job
        self.wait_for(PROMPT.format(4))
        terminal.type("not entered")
        self.wait_for("▸ not entered$")
        terminal.press("C-c")
        self.wait_for(PROMPT.format(4))
        self.terminal.enter("continue")
        self.wait_for(PROMPT.format(4) + r"|^In \[4\] ranks 0-1 ▸ continue\n(.*\n)*In \[4\]")
        self.terminal.enter("step")
        self.wait_for(PROMPT.format(5))
        self.assertIn("0-1 = 1\n", terminal.screen())
        terminal.press("C-d")
        self.wait_for(r"▸ *\n(.*\n)*^In \[5\] ranks 0-1 ▸ *\n?\Z")
        self.terminal.enter("print('of step', step)")
        self.wait_for(PROMPT.format(6))
        self.assertIn("│ of step 2\n", terminal.screen())
        self.terminal.enter("quit")
        self.assertEqual(self.wait_for_end(), 0)
        self.assertEqual([each["total"] for each in self.results()], [30, 60])
        self.assertNotIn("hang", terminal.screen(history=True))

    def test_detach_a_killed_prompt_and_ctrl_c_for_the_job(self):
        terminal = self.show([LOCKSTEP, "run", "--", *self.command("every")], LOCKSTEP_BREAKPOINT_GRACE="0.2")
        self.wait_for(PROMPT.format(1))
        (lockstep,) = children(terminal.tmux("display-message", "-p", "-t", "test", "#{pane_pid}").strip())
        (prompt,) = [each for each in children(lockstep) if os.getpgid(each) == each]
        os.kill(prompt, signal.SIGKILL)
        self.wait_for("the prompt was killed by SIGKILL")
        self.wait_for(r"no shell came within 0\.2 s\n(.*\n)*In \[1\] ranks 0-1 ▸ *\n?\Z")  # at the next breakpoint
        self.terminal.enter("detach")
        self.assertEqual(self.wait_for_end(), 0)
        self.assertEqual([each["total"] for each in self.results()], [30, 60])
        self.terminal.close()
        terminal = self.show([LOCKSTEP, "run", "--", *self.command("steps")])
        self.wait_for("^trains")
        terminal.press("C-c")
        self.assertEqual(self.wait_for_end(), 130)

    def test_a_job_that_reads_the_terminal(self):
        terminal = self.show([LOCKSTEP, "run", "--", *self.command("reads")])
        self.wait_for("lockstep: rank 1 waits in breakpoint")  # rank 0 asks meanwhile: no prompt
        self.terminal.enter("Ada")
        self.wait_for(PROMPT.format(1))
        self.terminal.enter("name")
        self.wait_for(PROMPT.format(2))
        self.assertIn("0   = 'Ada'\n", terminal.screen())
        terminal.press("C-d")
        self.wait_for(r"^family\?")  # tmux leaves out blanks at the end of a line
        self.terminal.enter("Lovelace")
        self.assertEqual(self.wait_for_end(), 0)
        self.assertEqual([each["total"] for each in self.results()], ["Ada Lovelace", 0])

    def test_a_rank_that_dies_at_the_prompt(self):
        terminal = self.show([LOCKSTEP, "run", "--", *self.command("once")], LAUNCH_GOES_ON="1")
        self.wait_for(PROMPT.format(1))
        os.kill(self.rank_file(1)["pid"], signal.SIGKILL)
        self.wait_for(r"rank 1: SIGKILL\n +was killed by SIGKILL")
        self.terminal.enter("rank, factor")
        self.wait_for(PROMPT.format(2))
        self.assertIn("0   = (0, 10)\n", terminal.screen())
        terminal.press("C-d")
        self.assertEqual(self.wait_for_end(), 5)

    def test_without_a_terminal(self):
        def run(*options, **more):
            done = subprocess.run([LOCKSTEP, "run", *options, "--", *self.command("once")], env=self.environment(**more),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)
            return done.stdout

        said = run(LOCKSTEP_BREAKPOINT_TIMEOUT="0.7")
        self.assertRegex(said, r"lockstep: ranks 0-1 wait in breakpoint\(\) at .*prompt\.py, line \d+, in train, and go on "
                         r"after 0\.7 s; `lockstep attach \d+-\w+` opens a prompt, with --run FILE")
        self.assertEqual(said.count("waits in breakpoint"), 0)
        self.assertIn("go on after 1 s", run("--hang-timeout", "1"))


class Attach(JobInTerminal):
    def attach(self, **more):
        """A job that has stopped, and a prompt over it."""
        job = subprocess.Popen(self.command("every"), env=self.environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        self.addCleanup(job.communicate)
        self.addCleanup(job.terminate)
        for _ in range(2):
            self.assertIn("waits in breakpoint", job.stdout.readline())
        (folder,) = self.folder.glob("lockstep/job-*")
        terminal = self.show([LOCKSTEP, "attach", folder.name.removeprefix("job-")], **more)
        self.wait_for(PROMPT.format(1))
        return job, terminal

    def test_cpp_names_and_ctrl_c_while_the_header_is_built(self):
        cache = self.folder / "cache"
        _, terminal = self.attach(XDG_CACHE_HOME=str(cache))
        self.terminal.enter("%cpp 1 + 1")
        self.wait_for("building the precompiled header")
        terminal.press("C-c")
        self.wait_for(PROMPT.format(1))
        # The next cell builds it anew, or takes that of the user's cache if there is one, which is faster.
        home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep" / "pch"
        here = cache / "lockstep" / "pch"
        for each in home.glob("*"):
            if each.is_dir() and not (here / each.name).exists():
                (here / each.name).symlink_to(each)
        terminal.type("%cpp torch::zeros_lik")
        terminal.press("Tab")  # starts the compiler
        self.wait_for(r"▸ %cpp torch::zeros_like")
        terminal.press("C-c")
        self.wait_for(PROMPT.format(1))
        self.terminal.enter("%%cpp")
        self.terminal.enter("int turns = 40;")
        self.terminal.enter("")
        self.wait_for(PROMPT.format(2))
        terminal.type("%cpp rank + tur")
        terminal.press("Tab")
        self.wait_for(r"▸ %cpp rank \+ turns$")
        terminal.press("Enter")
        self.wait_for(PROMPT.format(3))
        self.assertIn("0   = 40\n1   = 41\n", terminal.screen())
        self.terminal.enter("%%cpp")
        terminal.type("++tur")
        terminal.press("Tab")
        self.wait_for(r"\+\+turns$")
        terminal.press("Enter", "Enter")
        self.wait_for(PROMPT.format(4))
        self.assertIn("0-1 = 41\n", terminal.screen())
        terminal.type("facto")  # names of Python as before
        terminal.press("Tab")
        self.wait_for("▸ factor$")
        terminal.press("Enter")
        self.wait_for(PROMPT.format(5))
        self.terminal.enter("detach")
        self.assertEqual(self.wait_for_end(), 0)

    def test_keys(self):
        job, terminal = self.attach()
        self.terminal.enter("%py rank + 1")
        self.wait_for(PROMPT.format(2))
        self.assertIn("0   = 1\n1   = 2\n", terminal.screen())
        terminal.type("facto")
        terminal.press("Tab")
        self.wait_for("▸ factor$")
        terminal.press("Enter")
        self.wait_for(PROMPT.format(3))
        self.assertIn("1   = 20\n", terminal.screen())
        self.terminal.enter("where")
        self.wait_for(r"> .*prompt\.py, line \d+, in train")
        self.wait_for(PROMPT.format(3))
        self.terminal.enter('while not print("be" + "gun"): [0 for _ in iter(int, 1)]')  # complete with an empty line
        terminal.press("Enter")
        self.wait_for("│ begun")
        terminal.press("C-c")
        self.wait_for(PROMPT.format(4))
        self.terminal.enter("step")
        self.wait_for(PROMPT.format(5))
        self.assertIn("0-1 = 0\n", terminal.screen())
        self.terminal.enter("%rank 0 dist.all_reduce(torch.ones(1))")
        self.wait_for(r"all_reduce\(torch\.ones\(1\)\)\n")
        self.terminal.enter("%abort --yes")  # while the cell runs
        self.wait_for("Connection closed by peer")
        self.wait_for(r"^In \[\d+\] ranks 0-1 ▸ *\n?\Z")
        self.terminal.enter("detach")
        self.assertEqual(self.wait_for_end(), 0)
        self.assertEqual(job.wait(), 1)  # of the collective after the loop: its group was aborted


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
