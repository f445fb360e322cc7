"""A detachable session of the fake compiler and workers of tests/shell/core/fake, whose cells are commands, with terminals."""
import errno
import glob
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

from processes import descendants, parent, start_time, wait_gone
from terminal_screen import Program
from waiting import LIMIT_S, wait_until

SCRATCH = tempfile.TemporaryDirectory(prefix="ls-")   # short: sockets have their paths in it


def prompt(number):
    return rf"^In \[{number}\] (ranks?[ 0-9,-]* )?▸"


class DetachableSession(unittest.TestCase):
    """With its own folders, for tests that set the class's two programs."""

    lockstep_program = fakes = ""

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=SCRATCH.name)
        self.own = dict(LOCKSTEP_BIN=self.fakes, XDG_STATE_HOME=self.folder, XDG_RUNTIME_DIR=self.folder, LC_ALL="C.UTF-8",
                        LOCKSTEP_FOLD_TIME="2000")
        self.environment = dict(os.environ, **self.own)
        os.mkfifo(f"{self.folder}/go")
        self.processes, self.pid = {}, None
        self.addCleanup(self.end)

    def end(self):
        """Nothing that a test has started outlives it, and a test that left something has failed."""
        for pid, born in self.processes:
            if pid == self.pid and start_time(pid) == born:
                os.kill(pid, signal.SIGTERM)
        left = wait_gone(self.processes, LIMIT_S)
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(left, {})
        self.assertEqual(glob.glob(f"{self.folder}/lockstep/*.terminal*"), [])

    # ---- What there is ------------------------------------------------------------------------------------------------------

    def lockstep(self, *words, code=0):
        run = subprocess.run([self.lockstep_program, *words], env=self.environment, text=True, capture_output=True, cwd=self.folder,
                             stdin=subprocess.DEVNULL, timeout=LIMIT_S)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout + run.stderr

    def sessions(self):
        """Those of this test: others of the same user may run besides."""
        folder = f"{self.folder}/lockstep"
        return [each for each in json.loads(self.lockstep("sessions", "list", "--json")) if each["state"] != "dead" and
                (each["path"].startswith(folder) or os.path.exists(f"{folder}/{each['id']}.terminal"))]

    def wait_detached(self):
        wait_until(lambda: all(each.get("terminal", {"attached": "?"})["attached"] is None for each in self.sessions()))

    def journal(self):
        run = subprocess.run([self.lockstep_program, "sessions", "show", self.id, "--json"], env=self.environment, text=True, capture_output=True)
        return run.stdout

    def program(self, *words, columns=100, rows=50, **more):
        program = Program([self.lockstep_program, *words], columns=columns, rows=rows, environment=dict(self.own, **more))
        self.addCleanup(program.__exit__)
        return program

    def start(self, *words, option="--detachable", **more):
        program = self.program(option, "-n", "2", *words, **more)
        program.wait_for(prompt(1))
        (session,) = self.sessions()
        self.id, self.pid = session["id"], session["pid"]
        self.keeper = parent(self.pid)
        for pid in (self.keeper, self.pid):
            self.processes[(pid, start_time(pid))] = "session"
        self.processes.update(descendants(self.pid))
        return program

    def resume(self, *words, **more):
        return self.program("--resume", self.id, *words, **more)

    def run_cell(self, program, text, number):
        program.send(text + "\r")
        program.wait_for(prompt(number) + r"\s*\Z")

    def waiting_cell(self, program, number):
        """A cell that prints "between" when go() is called."""
        program.send(f"!cat {self.folder}/go; echo between{number}\r")
        wait_until(lambda: "/go; " in self.journal())

    def go(self):
        def has_reader():
            try:
                os.close(os.open(f"{self.folder}/go", os.O_WRONLY | os.O_NONBLOCK))
                return True
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                return False

        wait_until(has_reader)

    def kill(self, program):
        os.kill(program.pid, signal.SIGKILL)
        program.wait_end()
        self.wait_detached()

    def start_in_editor(self, option):
        editor = pathlib.Path(self.folder, "editor.py")
        editor.write_text("import os, signal, sys\n"
                          "signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b'drawn again\\n'))\n"
                          "os.write(1, b'the editor is open\\n')\n"
                          "sys.stdin.readline()\n"
                          "os.write(1, b'its last line\\n')\n")
        first = self.start(option=option, VISUAL=f"{sys.executable} {editor}")
        self.run_cell(first, "print x", 2)
        first.send("%edit\r")
        first.wait_for("^the editor is open$")
        self.processes.update(descendants(self.pid))
        return first
