"""`lockstep` as a person uses it, on a pseudo-terminal and from a pipe, with the fake compiler and workers of ../core/fake, whose cells are
commands: python3 terminal_test.py LOCKSTEP FAKES"""
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from processes import children, stat_of  # noqa: E402
from terminal_screen import LIMIT_S, Program  # noqa: E402

LOCKSTEP, FAKES = (sys.argv.pop(1), sys.argv.pop(1)) if len(sys.argv) > 2 else ("", "")
SCRATCH = tempfile.TemporaryDirectory(prefix="ls-")   # short: sockets have their paths in it


def environment(**more):
    folder = tempfile.mkdtemp(dir=SCRATCH.name)
    return dict(dict(LOCKSTEP_BIN=FAKES, XDG_STATE_HOME=folder, XDG_RUNTIME_DIR=folder), **more)


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
        self.assertTrue(first.startswith("✓ 2 ranks, shared_memory, LibTorch 2.11.0, fake\n    ranks 0-1 on cpu\n"), first)
        self.assertTrue(first.endswith("\n0-1 │ hello"), first)
        self.assertEqual(self.run_cell("value 42", 3), "0-1 = 42")
        self.assertEqual(self.run_cell("rank 1 print_err warn", 4), "1   ┊ warn")
        self.assertTrue(self.run_cell("%who nothing", 4).startswith("✗ %who takes variable, function,"))
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
        program.press_until("\x03", "SIGKILL")  # the offer has to stand for a while
        program.wait_for(r"✗ rank 1: SIGKILL in cell 1\n")
        program.wait_for(r"^In \[2\] rank 0 ▸")

    def test_control_c_that_stops_a_compile_is_answered(self):
        program = self.start("-n", "2")
        begun = os.path.join(SCRATCH.name, "begun")
        os.mkfifo(begun)
        waiting = select.poll()
        waiting.register(os.open(begun, os.O_RDONLY | os.O_NONBLOCK), 0)
        program.send(f"slow {begun}\r")
        self.assertTrue(waiting.poll(LIMIT_S * 1000))  # the compiler has opened and closed it: Ctrl-C is not the prompt's
        program.send("\x03")
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
        program.wait_for(r"^cells run on rank 1$")
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
        program.send("%interrupt 1  // enough\r")
        program.wait_for("rank 1 was interrupted")
        program.wait_for(r"^In \[3\] ranks 0-1 ▸ print later\n0-1 │ later\n")

    def pid_of_rank(self, rank, number):
        """With the prompt of cell `number` on the screen, which is there again afterwards."""
        prompts = len(re.findall(rf"^In \[{number}\]", self.program.screen.text(), re.MULTILINE))
        self.program.send("%dist_status\r")
        self.program.wait_for(rf"^{rank} +idle +\d+")
        self.program.wait_for(rf"^In \[{number}\]", prompts + 1)
        return int(re.search(rf"^{rank} +idle +(\d+)", self.program.screen.text(), re.MULTILINE).group(1))

    def test_a_death_at_the_prompt_is_told_once_above_a_prompt_that_knows_of_it(self):
        program = self.start("-n", "3")
        self.run_cell("print", 2)
        pid = self.pid_of_rank(1, 2)
        program.send("half a li")
        program.wait_for("half a li")
        os.kill(pid, signal.SIGKILL)
        program.wait_for(r"✗ rank 1: .*SIGKILL.*\n(.*\n)*In \[2\] ranks 0,2 ▸ half a li\Z")
        program.wait_for(r"Cells run on ranks 0,2 from now on.*\n(.*\n)*In \[2\] ranks 0,2 ▸ half a li\Z")
        self.assertEqual(program.screen.text().count("SIGKILL"), 2, "its head and its message")
        program.send("\x03")
        program.wait_for(r"^In \[2\] ranks 0,2 ▸\s*\Z")
        self.assertIn("✗ rank 1 is dead: name other ranks (0,2 live)", self.run_cell("%rank 1", 2))

    def test_a_death_is_shown_while_the_others_run_on(self):
        program = self.start()
        self.run_cell("print", 2)
        self.paste("rank 1 kill 9\nloop")
        program.wait_for(r"✗ rank 1: SIGKILL in cell 2\n")
        program.wait_for("rank 0 runs on; Ctrl-C interrupts it")
        program.send("\x03")
        program.wait_for(r"^In \[3\] rank 0 ▸\s*\Z")
        self.assertEqual(program.screen.text().count("SIGKILL in cell 2"), 1)

    def test_control_c_at_an_empty_prompt_frees_ranks_that_are_stuck(self):
        program = self.start()
        self.run_cell("print", 2)
        program.send("rank 0 join\r")
        program.wait_for("✗ hang: rank 0 waits in all_reduce #1")
        program.wait_for(r"^In \[3\] .*▸\s*\Z")
        program.send("what is typed goes first")
        program.wait_for("goes first")
        program.send("\x03")
        program.wait_for(r"\^C\nIn \[3\] .*▸\s*\Z")
        self.assertNotIn("■", program.screen.text())
        program.send("\x03")
        program.wait_for("■ rank 0: interrupted")
        self.assertEqual(self.run_cell("print all", 4), "0-1 │ all")

    def is_pending(self, pid, number):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        (mask,) = re.findall(r"^ShdPnd:\s*(\w+)", status, re.MULTILINE)
        return int(mask, 16) >> (number - 1) & 1

    def test_control_c_drops_what_the_prompt_has_not_read_yet(self):
        program = self.start()
        os.kill(program.pid, signal.SIGSTOP)
        while stat_of(program.pid)[0] != "T":
            program.pump(0.01)
        program.send("abandoned")
        program.send("\x03")
        while not self.is_pending(program.pid, signal.SIGINT):  # the terminal hands bytes on in its own time
            program.pump(0.01)
        os.kill(program.pid, signal.SIGCONT)
        program.wait_for(r"^In \[1\] ranks 0-1 ▸ \^C\nIn \[1\] ranks 0-1 ▸\s*\Z")
        self.run_cell("print hello", 2)
        self.assertNotIn("abandoned", program.screen.text())

    def test_comments_stand_behind_magics(self):
        self.start()
        self.run_cell("print", 2)
        self.assertTrue(self.run_cell("%dist_status   // what every rank does", 2).startswith("rank  state"))
        self.assertEqual(self.run_cell("%rank 1 print a//b // only there", 3), "1   │ a//b")

    def test_control_c_in_a_flood_on_a_slow_terminal(self):
        program = self.start()
        self.run_cell("print", 2)
        program.send("storm 50000000\r")
        program.wait_for(r"│ 1000\.")
        for _ in range(20):  # a terminal that takes 50 kB a second
            program.take(512)
            time.sleep(0.01)
        program.send("\x03")
        begin, acknowledged = time.monotonic(), None
        rest = b""
        while b"In [3]" not in rest and len(rest) < 1_000_000:
            taken = program.take(512)
            self.assertTrue(taken, "the program has ended")
            rest += taken
            if b"dropped" in rest and acknowledged is None:
                acknowledged = time.monotonic() - begin
        self.assertLess(len(rest), 100_000, "the terminal goes on showing what it was behind with")
        self.assertRegex(rest.decode(errors="replace"), r"\n.*■ interrupted.*; output that is not shown yet is dropped.*\r\n")
        self.assertRegex(rest.decode(errors="replace"), r"… \d+\.\d [kM]B of output not shown")
        print(f"  acknowledged after {acknowledged * 1000:.0f} ms and {len(rest)} bytes", file=sys.stderr)
        program.send("print after\r")
        program.wait_for(r"0-1 │ after\nIn \[4\]")

    def test_a_dumb_terminal_has_a_prompt(self):
        program = self.start(TERM="dumb")
        program.send("print hello\n")
        program.wait_for(r"0-1 │ hello\nIn \[2\] ranks 0-1 ▸ \Z|0-1 │ hello\nIn \[2\] ranks 0-1 ▸\Z")
        program.send("%%rank [0]\nprint only\n\n")
        program.wait_for("0   │ only")
        program.wait_for(r"^In \[3\]")
        program.send("%%rank all\nprint begun\nloop\n\n")
        program.wait_for("0-1 │ begun")
        program.send("%interrupt\n")
        program.wait_for("■ ranks 0-1: interrupted")
        program.wait_for(r"^In \[4\]")
        program.send("half\x03")
        program.wait_for(r"^In \[4\] .*\n*In \[4\] .*")
        program.send("throw boom\n")
        program.wait_for("boom")
        self.assertNotIn(b"\x1b", program.raw)
        program.wait_for(r"^In \[5\]")
        program.send("\x04")
        self.assertEqual(program.wait_end(), 0)

    def test_what_is_typed_in_one_go_with_a_cell_is_done_while_it_runs(self):
        for terminal, end in (("dumb", "\n"), ("xterm", "\r")):
            with self.subTest(terminal):
                program = self.start(TERM=terminal)
                self.run_cell("print", 2)
                program.send(end.join(("loop", "%dist_status", "print after", "")))
                program.wait_for(r"^1 +(running|idle) +\d+ ")  # the ranks may just have begun
                program.send("\x03")
                program.wait_for(r"0-1 │ after\n+In \[")
                program.send("\x04")
                self.assertEqual(program.wait_end(), 0)

    def test_the_end_of_the_input_is_kept_for_the_prompt(self):
        for terminal, end in (("dumb", "\n"), ("xterm", "\r")):
            with self.subTest(terminal):
                program = self.start(TERM=terminal)
                self.run_cell("print", 2)
                program.send("stop" + end)
                compiler = self.until_stopped()
                program.send("%pwd\n\x04")
                program.wait_for(r"^/")  # the answer
                os.kill(compiler, signal.SIGCONT)
                self.assertEqual(program.wait_end(), 0)

    def test_a_compiler_that_was_stopped_does_not_hold_the_prompt(self):
        program = self.start()
        self.run_cell("print", 2)
        program.send("stop\r")
        self.until_stopped()
        program.send("\x03")
        program.wait_for("■ interrupted; nothing of the cell has run")
        self.assertIn("0-1 │ again", self.run_cell("print again", 4))
        self.assertIn("lockstep-compiler is started again", program.screen.text())

    def until_stopped(self):
        """Until a child of the program has been stopped."""
        while True:
            for pid in children(self.program.pid):
                if stat_of(pid)[:1] == ["T"]:
                    return pid
            self.program.pump(0.01)

    def test_enter_does_not_ask_a_stopped_compiler_and_a_question_is_given_up(self):
        program = self.start()
        self.run_cell("print", 2)
        compiler = children(program.pid)[0]
        os.kill(compiler, signal.SIGSTOP)
        program.send("f(1,\r2)")
        program.wait_for(r"2\)")
        program.send("\x03")
        program.wait_for(r"2\)\^C")
        program.send("pri\t")  # Tab asks it, and Ctrl-C gives the question up
        program.wait_for(r"▸ pri$")
        program.send("\x03")
        program.wait_for(r"▸ pri\^C")
        os.kill(compiler, signal.SIGCONT)
        self.assertIn("0-1 │ y", self.run_cell("print y", 3))

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
        program.send("exit();\r")
        self.assertEqual(program.wait_end(), 0)

    def test_sigterm_tidies_up(self):
        program = self.start("-n", "2")
        os.kill(program.pid, signal.SIGTERM)
        self.assertEqual(program.wait_end(), 128 + signal.SIGTERM)


    def test_sigquit_tidies_up(self):
        folder = tempfile.mkdtemp(dir=SCRATCH.name)
        program = self.start("-n", "2", XDG_RUNTIME_DIR=folder)
        self.assertEqual(len(os.listdir(folder + "/lockstep")), 1)
        os.kill(program.pid, signal.SIGQUIT)
        self.assertEqual(program.wait_end(), 128 + signal.SIGQUIT)
        self.assertEqual(os.listdir(folder + "/lockstep"), [])

    def test_sigterm_does_not_wait_for_a_rank_that_stays(self):
        program = self.start("-n", "2")
        self.paste("print ready\nrank 1 stubborn")
        program.wait_for("0-1 │ ready")
        os.kill(program.pid, signal.SIGTERM)
        self.assertEqual(program.wait_end(), 128 + signal.SIGTERM)


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
