#!/usr/bin/env python3
"""on_preempt(): what ranks do when SIGTERM, SIGUSR1 or SIGUSR2 asks the session to end."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from processes import children  # noqa: E402

LOCKSTEP = os.path.abspath(sys.argv.pop(1))

SAVES = """\
on_preempt([] {
  auto sum = torch::ones({1});
  dist::all_reduce(sum);
  std::cout << "saved by " << sum.item<int>() << std::endl;
});
"""
WAITS = """\
#include <unistd.h>
if (rank == 0) std::cout << "waits" << std::endl;
while (true) sleep(1);
"""


class Preempted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ls", dir="/tmp")  # a socket's path is short
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, *cells, arguments=("run",), **environment):
        """Returns the session when its last cell runs."""
        script = self.folder / "script.cpp"
        script.write_text("".join(f"// %%\n{cell}" for cell in (*cells, WAITS)))
        given = script.open() if arguments == () else open(os.devnull)
        self.addCleanup(given.close)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        session = subprocess.Popen([LOCKSTEP, *arguments, *([str(script)] if arguments else []), "-n", "2"], stdin=given,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder,
                                   env={**kept, "XDG_RUNTIME_DIR": str(self.folder), "NO_COLOR": "1",
                                        "LC_ALL": "C.UTF-8", "LOCKSTEP_FOLD_TIME": "2000", **environment})
        self.addCleanup(session.stdout.close)
        self.addCleanup(session.wait)
        self.addCleanup(session.kill)
        self.said = ""
        while "waits\n" not in self.said:
            line = session.stdout.readline()
            self.assertTrue(line, self.said)
            self.said += line
        return session

    def end(self, session, number, code):
        session.send_signal(number)
        self.said += session.communicate()[0]
        self.assertEqual(session.returncode, code, self.said)
        self.assertEqual([each.name for each in (self.folder / "lockstep").glob("*")], [], self.said)

    def test_ranks_save_after_their_cell(self):
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            self.end(self.start(SAVES), number, 130)
            self.assertRegex(self.said, f"(?s)\n{number.name}: the session is to end\n.*ranks 0-1: interrupted.*\n"
                                        "ranks 0-1 run on_preempt\n0-1 │ saved by 2\n")

    def test_a_terminal(self):
        self.end(self.start(SAVES, arguments=()), signal.SIGTERM, 128 + signal.SIGTERM)
        self.assertIn("ranks 0-1 run on_preempt\n0-1 │ saved by 2\n", self.said)

    def test_nothing_is_registered(self):
        self.end(self.start(SAVES, "on_preempt(nullptr);\n"), signal.SIGTERM, 130)
        self.assertIn("\nSIGTERM: the session is to end\n", self.said)
        self.assertNotIn("on_preempt\n", self.said)

    def test_the_end_of_a_terminal_is_no_preemption(self):
        self.end(self.start(SAVES), signal.SIGHUP, 130)
        self.assertNotIn("saved", self.said)

    def test_a_rank_that_can_not_save(self):
        session = self.start('on_preempt([] {\n  if (rank == 1) throw std::runtime_error("no space");\n'
                             '  std::cout << "saved" << std::endl;\n});\n')
        self.end(session, signal.SIGTERM, 130)
        self.assertIn("0   │ saved\n", self.said)
        self.assertIn("✗ rank 1: std::runtime_error in cell 1, line 2\n    no space\n", self.said)

    def test_a_rank_that_hangs_while_it_saves(self):
        """A second SIGTERM does not disturb it, and Ctrl-C ends the wait."""
        session = self.start("#include <unistd.h>\non_preempt([] {\n  if (rank == 1) while (true) sleep(1);\n"
                             '  std::cout << "saved" << std::endl;\n});\n', LOCKSTEP_FOLD_TIME="1")
        session.send_signal(signal.SIGTERM)
        for line in session.stdout:
            self.said += line
            if "saved\n" in line:
                break
        session.send_signal(signal.SIGTERM)
        self.end(session, signal.SIGINT, 130)
        self.assertIn("■ rank 1: interrupted", self.said)

    def test_a_signal_to_all_processes_of_a_slurm_job(self):
        """As Slurm sends it. Here no Slurm answers."""
        session = self.start(SAVES, SLURM_JOB_ID="1")
        processes = children(session.pid)
        self.assertGreaterEqual(len(processes), 4)  # two ranks, the store, the compiler
        for each in processes:
            os.kill(each, signal.SIGTERM)
        self.end(session, signal.SIGTERM, 130)
        self.assertIn("0-1 │ saved by 2\n", self.said)
        self.assertNotIn("✗ rank", self.said)


if __name__ == "__main__":
    unittest.main()
