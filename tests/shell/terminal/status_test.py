"""What a real terminal shows while something takes long: loops over progress(), what ranks are at, the start, the pager:
python3 status_test.py LOCKSTEP FAKES [--update] [names of tests]

Screens are compared with the files of captures/, but for the times; --update writes them anew."""
import os
import re
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../support"))
from captures import same_as_capture  # noqa: E402
from tmux import PROMPT, Terminal  # noqa: E402

LOCKSTEP, FAKES = (sys.argv.pop(1), sys.argv.pop(1)) if len(sys.argv) > 2 else ("", "")


def without_times(text):
    return re.sub(r"\d+:\d\d|[\d.]+ (it/s|s/it)", "T", text)


# Shows the exit code of a command. tmux's own line about a program that has ended can be missing: tmux 3.3a loses
# SIGCHLD at times.
WITH_STATUS = ["sh", "-c", 'trap : INT; "$0" "$@"; echo "status $?"']


class Status(unittest.TestCase):
    maxDiff = None

    def open(self, command, columns=100, rows=24, **environment):
        self.folder = tempfile.mkdtemp(prefix="ls-")
        settings = dict(LOCKSTEP_BIN=FAKES, XDG_STATE_HOME=self.folder, XDG_RUNTIME_DIR=self.folder)
        settings.update(environment)
        self.terminal = Terminal(command, columns, rows, settings)
        self.addCleanup(self.terminal.close)
        return self.terminal

    def start(self, **options):
        terminal = self.open([LOCKSTEP, "-n", "2"], **options)
        terminal.wait_for(r"^In \[1\]")
        return terminal

    def cell(self, text):
        self.terminal.paste(text)
        self.terminal.press("Enter")

    def same_as_capture(self, name, screen):
        same_as_capture(self, name, screen, without_times)

    def test_loops_of_all_ranks_are_lines_in_place(self):
        terminal = self.start()
        self.cell("rank 0 turns 641 1000 epoch\nrank 1 turns 598 1000 epoch\nturns 7 10 inner\nloop")
        screen = terminal.wait_for(r"inner  70% 7/10 \[")
        first = screen[screen.index("0-1 │ epoch"):]
        self.assertIn("epoch  61% 619/1000 [", first)
        self.assertIn("slowest rank 1: 598, fastest rank 0: 641", first)
        self.same_as_capture("loops.txt", lambda: first.split("\n…")[0].rstrip("\n") + "\n")
        # Below them what the ranks are at, after a while without news.
        terminal.wait_for(r"^… cell 1 running for \d:\d\d\n    ranks 0-1: running, in no collective$")
        terminal.press("C-c")
        terminal.wait_for(PROMPT.format(2))
        screen = terminal.screen()
        self.assertEqual(len(re.findall("│ epoch  stopped at 61%", screen)), 1, screen)
        self.assertNotIn("running for", screen)

    def test_a_loop_leaves_a_line(self):
        terminal = self.start()
        self.cell("print before\nturned 10 10 all\nprint after\nrank 1 turned 4 10 half")
        terminal.wait_for(PROMPT.format(2))
        self.assertRegex(terminal.screen(), r"0-1 │ before\n0-1 │ all  100% 10/10 \[0:12, 0?.*\]\n0-1 │ after\n"
                                            r"1   │ half  stopped at 40% 4/10 \[0:12, .*\]\n")

    def test_what_takes_long_vanishes_when_output_comes(self):
        terminal = self.start()
        self.cell("loop")
        terminal.wait_for(r"^… cell 1 running for 0:0\d$")
        terminal.enter("%pwd")
        terminal.press("C-c")
        terminal.wait_for(PROMPT.format(2))
        self.assertNotIn("running for", terminal.screen())

    def test_a_compilation(self):
        terminal = self.start()
        self.cell("slow")
        terminal.wait_for(r"^… compiling cell 1 for 0:0\d$")
        terminal.press("C-c")
        terminal.wait_for(r"^In \[2\]")
        self.assertNotIn("compiling", terminal.screen())

    def test_the_start(self):
        terminal = self.open([*WITH_STATUS, LOCKSTEP, "-n", "2"], FAKE_WORKER="stop")
        terminal.wait_for(r"^… starting for 0:0\d\n    rank 1: starting\n    rank 0: up, waiting for the compiler and the other ranks$")
        terminal.press("C-c")
        terminal.wait_for(r"status 130")

    def test_the_step_of_a_build_has_the_time_of_the_last_one(self):
        terminal = self.open([*WITH_STATUS, LOCKSTEP, "-n", "2"], FAKE_COMPILER="build")
        terminal.wait_for("^building what takes long; the last time it took 31 s$")
        terminal.wait_for(r"^    building the precompiled header: step 1 of 2, the headers, 0:0\d of 0:31 as in the last build$")
        terminal.press("C-c")
        terminal.wait_for(r"status 130")

    def test_a_run_shows_one_row_beside_a_file(self):
        script = os.path.join(tempfile.mkdtemp(prefix="ls-"), "script.cpp")
        with open(script, "w") as file:
            file.write("// %%\nturns 3 9 epoch\nloop\n")
        terminal = self.open(["sh", "-c", f"trap : INT; '{LOCKSTEP}' run '{script}' -n 2 > '{script}.out'; echo over; cat"])
        terminal.wait_for(r"^0-1 │ epoch  33% 3/9 \[.*\n… cell 1 running for 0:0\d; ranks 0-1: running, in no collective$")
        terminal.press("C-c")
        terminal.wait_for("^over$")
        with open(script + ".out") as file:
            text = file.read()
        self.assertIn("0-1 │ epoch  stopped at 33% 3/9", text)
        self.assertNotIn("running for", text)
        self.assertNotIn("\x1b", text)

    def test_a_dumb_terminal_gets_lines_alone(self):
        terminal = self.open([LOCKSTEP, "-n", "2"], TERM="dumb")
        terminal.wait_for(r"^In \[1\]")
        terminal.enter("turned 3 3 all")
        terminal.wait_for(r"^0-1 │ all  100% 3/3 \[")

    def test_a_pager_for_what_is_taller_than_the_screen(self):
        terminal = self.start(rows=12, PAGER="less -R")
        self.cell("lines 30")
        terminal.wait_for("^… 30 lines: %page EXPR shows a value in a pager$")
        self.cell("%page lines 30")
        terminal.wait_for(r"^line 1$")
        self.assertNotIn("In [", terminal.screen())
        terminal.press("G")
        terminal.wait_for(r"^line 30$")
        terminal.press("q")
        terminal.wait_for(PROMPT.format(3))
        self.cell("%page value short")
        terminal.wait_for(r"^short\n(.*\n)*" + PROMPT.format(4)[1:])
        self.cell("%page print nothing")
        terminal.wait_for("✗ %page print nothing: it has no value to show")
        self.cell("%help")
        terminal.wait_for(r"^!COMMAND ")
        self.assertNotIn("In [", terminal.screen())
        terminal.press("q")
        terminal.wait_for(r"^In \[\d+\]")

    def test_a_pager_that_does_not_work(self):
        terminal = self.start(rows=12, PAGER="no-such-pager")
        self.cell("%page lines 30")
        terminal.wait_for(r"^line 1$")
        terminal.press("q")
        terminal.wait_for(PROMPT.format(2))

    def test_values_of_ranks_that_differ_follow_one_another(self):
        terminal = self.start(PAGER="cat")
        self.cell("%page rank 0 value zero")
        terminal.wait_for(r"^rank 0:\nzero$")


if __name__ == "__main__":
    unittest.main()
