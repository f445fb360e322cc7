"""`lockstep` as a person uses it, on a pseudo-terminal and from a pipe, with the fake compiler and workers of ../core/fake, whose cells are
commands: python3 terminal_test.py LOCKSTEP FAKES"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from terminal_screen import Program  # noqa: E402

LOCKSTEP, FAKES = (sys.argv.pop(1), sys.argv.pop(1)) if len(sys.argv) > 2 else ("", "")
SCRATCH = tempfile.TemporaryDirectory(prefix="ls-")   # short: sockets have their paths in it


def environment(**more):
    folder = tempfile.mkdtemp(dir=SCRATCH.name)
    return dict(LOCKSTEP_BIN=FAKES, XDG_STATE_HOME=folder, XDG_RUNTIME_DIR=folder, **more)


class OnATerminal(unittest.TestCase):
    def start(self, *arguments, columns=100, rows=50, **more):
        program = Program([LOCKSTEP, *arguments], columns=columns, rows=rows, environment=environment(**more))
        self.addCleanup(program.__exit__)
        self.program = program
        program.wait_for(r"^In \[1\] .*▸|^In \[1\] .*>")
        return program

    def run_cell(self, text, next_number):
        """Waits for a prompt, types it, waits for the next prompt, and returns what came between."""
        self.program.wait_for(r"^In \[\d+\] (ranks?[ 0-9,-]* )?[▸>]\s*\Z")
        before = len(re.findall(r"^In \[", self.program.screen.text(), re.MULTILINE))
        self.program.send(text + "\r")
        self.program.wait_for(r"^In \[", before + 1)
        self.program.wait_for(rf"^In \[{next_number}\] (ranks?[ 0-9,-]* )?[▸>]\s*\Z")
        last = self.program.screen.text().split("\nIn [")[-2]
        return "\n".join(last.split("\n")[1:])

    def paste(self, block):
        self.program.send("\x1b[200~" + block + "\x1b[201~\r")

    def test_a_first_session(self):
        program = self.start()
        first = self.run_cell("print hello", 2)
        self.assertTrue(first.startswith("✓ 2 ranks, gloo, LibTorch 2.11.0, fake\n    ranks 0-1 on cpu\n"), first)
        self.assertTrue(first.endswith("\n0-1 │ hello"), first)
        self.assertEqual(self.run_cell("value 42", 3), "0-1 = 42")
        self.assertEqual(self.run_cell("rank 1 print_err warn", 4), "1   ┊ warn")
        self.assertEqual(self.run_cell("%who nothing", 4).split("\n")[0][:36], "✗ there is no kind of name 'nothing'")
        program.send("\x04")
        self.assertEqual(program.wait_end(), 0)

    def test_errors(self):
        self.start()
        self.run_cell("print", 2)
        self.assertEqual(self.run_cell("rank 1 throw boom", 3), "✗ rank 1: std::runtime_error in cell 2, line 1\n    boom")
        self.assertEqual(self.run_cell("error no such name", 4), "line 1: no such name")
        self.assertIn("did you mean %rank?", self.run_cell("%rnak 0", 4))
        self.assertIn("ranks are 0-1", self.run_cell("%rank [7]", 4))

    def test_control_c_interrupts_the_cell_and_not_the_session(self):
        program = self.start()
        self.run_cell("print", 2)
        self.paste("print begun\nloop")
        program.wait_for("0-1 │ begun")
        program.send("\x03")
        program.wait_for("■ ranks 0-1: interrupted; variables are kept")
        program.wait_for(r"^In \[3\] ranks 0-1 ▸\s*\Z")
        self.assertEqual(self.run_cell("print still here", 4), "0-1 │ still here")

    def test_control_c_three_times_ends_a_rank_that_does_not_come_back(self):
        program = self.start()
        self.paste("print ready\nrank 1 stubborn")
        program.wait_for("0-1 │ ready")
        program.send("\x03")
        program.wait_for("rank 1 has not come back yet. Ctrl-C again offers to end it")
        program.send("\x03")
        program.wait_for("rank 1 did not come back. Ctrl-C once more ends it: what it holds is lost, the others keep theirs")
        program.send("\x03")
        program.wait_for(r"✗ rank 1: SIGKILL in cell 1\n")
        program.wait_for(r"^In \[2\] rank 0 ▸")

    def test_control_c_that_stops_a_compile_is_answered(self):
        program = self.start("-n", "2")
        program.send("slow\r")
        while b"\x1b[?2004l" not in program.raw:  # the line is taken: what is typed before it would be thrown away
            program.pump(1)
        while "interrupted" not in program.screen.text():  # one that comes before the cell runs is the prompt's
            program.send("\x03")
            program.pump(0.3)
        program.wait_for("■ interrupted; nothing of the cell has run")
        program.wait_for(r"^In \[2\] ranks 0-1 ▸\s*\Z")

    def test_control_c_at_the_start_leaves(self):
        program = Program([LOCKSTEP, "-n", "2"], columns=100, rows=50, environment=environment(FAKE_COMPILER="wait"))
        self.addCleanup(program.__exit__)
        program.wait_for("Lockstep")
        program.send("\x03")
        self.assertEqual(program.wait_end(), 130)

    def test_cell_magics_wait_for_their_cell(self):
        program = self.start()
        program.send("%%rank [0]\rprint only\r")
        program.send("\r")
        program.wait_for("0   │ only")
        program.wait_for(r"^In \[2\] ranks 0-1")

    def test_a_sticky_rank_is_in_the_prompt(self):
        program = self.start()
        self.run_cell("print", 2)
        program.send("%rank 1\r")
        program.wait_for(r"^In \[2\] rank 1 ▸\s*\Z")
        program.send("print x\r")
        program.wait_for("^1   │ x")

    def test_a_hang_gives_the_prompt_back_and_abort_frees_it(self):
        program = self.start()
        self.run_cell("print", 2)
        program.send("rank 0 join\r")
        program.wait_for("✗ hang: rank 0 waits in all_reduce #1")
        program.wait_for(r"^In \[3\]")
        program.send("%abort\r")
        program.wait_for("rank 0 was freed")

    def test_magics_that_work_while_a_cell_runs(self):
        program = self.start()
        self.run_cell("print", 2)
        self.paste("print begun\nrank 1 loop")
        program.wait_for("0-1 │ begun")
        program.send("%hang\r")
        program.wait_for("^%hang\ncell 2\nrank 0: has finished the cell\nrank 1: ")
        program.send("print later\r")
        program.send("%stack 1\r")
        program.wait_for("^%stack 1\nrank 1\n")
        program.send("%stack [9]\r")
        program.wait_for("ranks are 0-1")
        program.send("%interrupt 1\r")
        program.wait_for("rank 1 was interrupted")
        program.wait_for(r"^In \[3\] ranks 0-1 ▸ print later\n0-1 │ later\n")

    def test_a_death_at_the_prompt_is_told_above_it(self):
        program = self.start()
        self.run_cell("print", 2)
        program.send("%dist_status\r")
        program.wait_for(r"^1 +idle +\d+")
        pid = int(re.search(r"^1 +idle +(\d+)", program.screen.text(), re.MULTILINE).group(1))
        program.wait_for(r"^In \[2\]", 2)
        program.send("half a li")
        program.wait_for("half a li")
        os.kill(pid, signal.SIGKILL)
        program.wait_for(r"✗ rank 1: .*SIGKILL.*\n(.*\n)*In \[2\] .*▸ half a li\Z")

    def test_load_and_save(self):
        program = self.start()
        folder = tempfile.mkdtemp(dir=SCRATCH.name)
        with open(folder + "/s.cpp", "w") as file:
            file.write("// %% [markdown]\n// # Title\n// %%\nprint from file\n// %%\nvalue 7\n")
        self.run_cell(f"%cd {folder}", 1)
        program.send("%load s.cpp\r")
        program.wait_for("0-1 = 7")
        self.assertIn("# Title", program.screen.text())
        self.assertIn("0-1 │ from file", program.screen.text())
        self.assertEqual(self.run_cell("%save t", 3), f"wrote 3 cells to {folder}/t.cpp")
        with open(folder + "/t.cpp") as file:
            self.assertEqual(file.read(), f"// %%\n%cd {folder}\n\n// %%\nprint from file\n\n// %%\nvalue 7\n")
        self.assertIn("did you mean", self.run_cell("%load x.cpp", 3))

    def test_no_colour_where_it_is_not_wanted(self):
        self.start(NO_COLOR="1")
        self.run_cell("rank 1 throw boom", 2)
        self.assertNotIn(b"\x1b[1;31m", self.program.raw)
        self.start()
        self.run_cell("rank 1 throw boom", 2)
        self.assertIn(b"\x1b[1;31m", self.program.raw)

    def test_an_ascii_locale(self):
        self.start(LC_ALL="C")
        self.assertTrue(self.run_cell("print x", 2).endswith("0-1 | x"))

    def test_a_narrow_terminal(self):
        self.start(columns=30)
        self.run_cell("print", 2)
        self.assertEqual(self.run_cell("rank 1 throw a long message that wraps at blanks", 3).split("\n")[-2:],
                         ["    a long message that wraps", "    at blanks"])

    def test_exit_leaves(self):
        program = self.start("-n", "3")
        self.assertIn("✓ 3 ranks", program.screen.text())
        program.send("exit\r")
        self.assertEqual(program.wait_end(), 0)

    def test_sigterm_tidies_up(self):
        program = self.start("-n", "2")
        os.kill(program.pid, signal.SIGTERM)
        self.assertEqual(program.wait_end(), 128 + signal.SIGTERM)


    def test_sigterm_does_not_wait_for_a_rank_that_stays(self):
        program = self.start("-n", "2")
        self.paste("print ready\nrank 1 stubborn")
        program.wait_for("0-1 │ ready")
        os.kill(program.pid, signal.SIGTERM)
        self.assertEqual(program.wait_end(), 128 + signal.SIGTERM)


class Run(unittest.TestCase):
    def script(self, text):
        with tempfile.NamedTemporaryFile("w", dir=SCRATCH.name, suffix=".cpp", delete=False) as file:
            file.write(text)
        return file.name

    def start(self, text, **streams):
        return subprocess.Popen([LOCKSTEP, "run", self.script(text)], text=True,
                                env=dict(os.environ, LC_ALL="C.UTF-8", **environment()), **streams)

    def test_sigterm_ends_the_run_as_interrupted(self):
        run = self.start("print begun\nloop\n", stdout=subprocess.PIPE)
        while "│ begun" not in run.stdout.readline():
            pass
        run.send_signal(signal.SIGTERM)
        rest, _ = run.communicate()
        self.assertEqual(run.returncode, 130)
        self.assertNotIn("Ctrl-C", rest)
        self.assertNotIn("SIGKILL", rest)
        self.assertIn("■ ranks 0-1: interrupted", rest)

    def test_sigterm_ends_a_rank_that_stays(self):
        run = self.start("print begun\nrank 1 stubborn\n", stdout=subprocess.PIPE)
        while "│ begun" not in run.stdout.readline():
            pass
        run.send_signal(signal.SIGTERM)
        rest, _ = run.communicate()
        self.assertEqual(run.returncode, 130)
        self.assertIn("rank 1 could not be interrupted and is ended", rest)

    def test_output_that_is_lost_counts(self):
        with open("/dev/full", "w") as full:
            run = self.start("print lost\n", stdout=full, stderr=subprocess.PIPE)
            _, errors = run.communicate()
        self.assertEqual(run.returncode, 1)
        self.assertEqual(errors, "lockstep: the output can't be written: No space left on device\n")

    def test_output_that_nobody_reads_does_not_count(self):
        run = self.start("print lost\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with run:
            run.stdout.close()
            self.assertEqual(run.stderr.read(), "")
        self.assertEqual(run.returncode, 0)


class FromAPipe(unittest.TestCase):
    def run_text(self, text, *arguments, **more):
        return subprocess.run([LOCKSTEP, *arguments], input=text, capture_output=True, text=True, timeout=300,
                              env=dict(os.environ, LC_ALL="C.UTF-8", **environment(**more)))

    def test_cells_run_and_no_prompt_is_shown(self):
        result = self.run_text("print a\nvalue 1\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue(result.stdout.endswith("0-1 │ a\n0-1 = 1\n"), result.stdout)
        self.assertNotIn("In [", result.stdout)
        self.assertNotIn("\x1b", result.stdout)

    def test_the_first_failure_decides_and_the_rest_still_runs(self):
        result = self.run_text("throw boom\nprint after\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("0-1 │ after", result.stdout)
        self.assertEqual(self.run_text("%no_such_magic\n").returncode, 2)

    def test_a_session_that_cannot_start(self):
        result = self.run_text("print a\n", FAKE_WORKER="die")
        self.assertEqual(result.returncode, 3)
        self.assertIn("libtorch_cpu.so: no such file", result.stderr)

    def test_cell_magics_take_what_follows(self):
        result = self.run_text("%%rank [0]\nprint only\nprint all\n")
        self.assertTrue(result.stdout.endswith("0   │ only\n0-1 │ all\n"), result.stdout)

    def test_output_that_is_lost_counts(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([LOCKSTEP], input="print lost\n", stdout=full, stderr=subprocess.PIPE, text=True,
                                    env=dict(os.environ, **environment()))
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "lockstep: the output can't be written: No space left on device\n")

    def test_colour_where_it_is_forced(self):
        self.assertIn("\x1b[1;31m", self.run_text("throw boom\n", CLICOLOR_FORCE="1").stdout)


if __name__ == "__main__":
    unittest.main()
