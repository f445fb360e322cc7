"""The line editor of `lockstep` in a real terminal: python3 editor_test.py LOCKSTEP FAKES [--update] [names of tests]

What the screen shows is compared with the files of captures/ (with colours where they end in .ansi: cat shows them);
--update writes them anew."""
import os
import re
import shutil
import signal
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../support"))
from captures import same_as_capture  # noqa: E402
from processes import children  # noqa: E402
from tmux import PROMPT, Terminal  # noqa: E402

LOCKSTEP, FAKES = (sys.argv.pop(1), sys.argv.pop(1)) if len(sys.argv) > 2 else ("", "")


class Editor(unittest.TestCase):
    maxDiff = None

    def start(self, columns=80, rows=24, started=True, state=None, **environment):
        self.state = state or tempfile.mkdtemp(prefix="ls-")
        settings = dict(LOCKSTEP_BIN=FAKES, XDG_STATE_HOME=self.state, XDG_RUNTIME_DIR=self.state)
        settings.update(environment)
        terminal = Terminal([LOCKSTEP] + (["-n", "2"] if started else []), columns, rows, settings)
        self.addCleanup(terminal.close)
        self.terminal = terminal
        terminal.wait_for(r"^In \[1\]")
        return terminal

    def last(self, colours=False):
        """The screen from the last prompt on."""
        lines = self.terminal.screen(colours=colours).split("\n")
        first = max(k for k, line in enumerate(lines) if "In [" in line)
        return "\n".join(lines[first:])

    def same_as_capture(self, name, screen):
        same_as_capture(self, name, screen)

    def test_colours_and_brackets(self):
        terminal = self.start()
        terminal.enter("for (int i = 0; i < 10; ++i) { // all of them")
        terminal.enter('print("é 漢字", f(i * 0x1F), 1.5e-3f);')
        terminal.type("}")
        screen = terminal.wait_for(r"^\.\.\. \}")
        self.assertIn("...   print", screen)
        self.same_as_capture("colours.ansi", lambda: self.last(colours=True))
        terminal.press("Enter")
        terminal.wait_for(PROMPT.format(2))
        self.assertIn('In [1] ranks 0-1 ▸ for (int i = 0; i < 10; ++i) { // all of them\n  print("é 漢字"', terminal.screen())

    def test_no_colour(self):
        terminal = self.start(NO_COLOR="1")
        terminal.type("for (int i = 0; i < f(1, ")
        terminal.wait_for(r"int f\(int a, <int b>\)")
        self.assertNotIn("\x1b", terminal.screen(colours=True))

    def test_up_and_down_keep_what_is_typed(self):
        terminal = self.start()
        for number, cell in enumerate(["print one", "print two", "value 3"], 1):
            terminal.enter(cell, number + 1)
        terminal.type("not yet")
        terminal.wait_for("▸ not yet$")
        terminal.press("Down")
        terminal.press("Up")  # nothing begins so
        terminal.press("Down", "Down")
        terminal.type(" done")
        terminal.wait_for("▸ not yet done$")
        terminal.press("C-u")
        terminal.type("print")
        terminal.press("Up")
        terminal.wait_for(r"In \[4\].*▸ print two$")
        terminal.press("Up")
        terminal.wait_for(r"In \[4\].*▸ print one$")
        terminal.press("Up", "Down", "Down")
        terminal.wait_for(r"In \[4\].*▸ print$")
        terminal.press("C-u", "Up")
        terminal.wait_for(r"In \[4\].*▸ value 3$")
        terminal.type("4")
        terminal.press("Up", "Down")
        terminal.wait_for(r"In \[4\].*▸ value 34$")
        terminal.press("Down")
        terminal.wait_for(PROMPT.format(4))

    def test_a_cell_of_the_history_is_edited_in_its_middle(self):
        terminal = self.start()
        terminal.paste("print a\nprint b\nprint c")
        terminal.press("Enter")
        terminal.wait_for(PROMPT.format(2))
        terminal.press("Up")
        terminal.wait_for(r"^\.\.\. print c$")
        terminal.press("Up")
        terminal.type("!")
        terminal.press("M-Enter")
        terminal.wait_for(r"0-1 │ b!")
        terminal.wait_for(PROMPT.format(3))

    def test_a_pasted_cell_magic_runs_on_enter(self):
        terminal = self.start()
        terminal.paste("%%rank [0]\nprint only\n")
        terminal.wait_for(r"^\.\.\. print only$")
        terminal.press("Enter")
        terminal.wait_for("^0   │ only$")
        terminal.wait_for(PROMPT.format(2))
        terminal.paste("%%rank [1]\nprint other\n")
        terminal.press("Enter")
        terminal.wait_for("^1   │ other$")
        terminal.wait_for(PROMPT.format(3))
        terminal.enter("%%rank [0]")
        terminal.enter("print typed")
        terminal.wait_for(r"^\.\.\. print typed\n\.\.\.")
        terminal.press("Enter")
        terminal.wait_for("^0   │ typed$")

    def test_a_cell_taller_than_the_screen(self):
        terminal = self.start(columns=60, rows=12)
        terminal.paste("\n".join(f"print line {k}" for k in range(40)))
        screen = terminal.wait_for("print line 39$")
        self.assertIn("… 29 more lines above", screen)
        terminal.press("C-Home")
        screen = terminal.wait_for("▸ print line 0$")
        self.assertIn("… 29 more lines below", screen)
        terminal.press("NPage", "NPage", "NPage")
        terminal.wait_for("print line 18$")
        self.same_as_capture("tall_cell.txt", terminal.screen)
        terminal.press("C-End", "Enter")
        terminal.wait_for(PROMPT.format(2))
        text = terminal.screen(history=True)
        for k in range(40):
            self.assertEqual(len(re.findall(rf"^(In \[1\].*▸ )?print line {k}$", text, re.MULTILINE)), 1, k)
            self.assertEqual(len(re.findall(rf"^0-1 │ line {k}$", text, re.MULTILINE)), 1, k)

    def test_a_paste_of_any_size(self):
        terminal = self.start()
        terminal.paste("// " + "x" * 300_000 + "\nprint end of it")
        terminal.press("Enter")
        terminal.wait_for("0-1 │ end of it")

    def test_another_size_of_the_terminal(self):
        terminal = self.start(columns=100, rows=24)
        terminal.enter("print " + " ".join(f"word{k}" for k in range(12)) + " {")
        terminal.type("second line")
        terminal.wait_for("second line")
        for count, (columns, rows) in enumerate(((40, 24), (70, 10), (30, 30), (100, 24)), 1):
            terminal.resize(columns, rows)
            terminal.type("+")
            terminal.wait_for(r"second line" + r"\+" * count + "$")
            # The signal comes when it comes: the first row is as wide as the screen, or ends with the brace.
            terminal.wait_for(r"^(In \[1\].{%d}|In \[1\].*\{)$" % (columns - 6))
        screen = terminal.screen()
        self.assertEqual(screen.count("word3"), 1, screen)
        self.assertEqual(screen.count("second line"), 1, screen)
        self.assertEqual(screen.count("In [1]"), 1, screen)
        terminal.resize(34, 20)
        terminal.type("=")
        terminal.wait_for(r"^In \[1\].{28}\n(.*\n)*.*second line\+\+\+\+=$")
        self.same_as_capture("resized.txt", lambda: self.last())

    def test_wide_characters_wrap_as_a_whole(self):
        terminal = self.start(columns=30)
        terminal.type("print 漢字漢字漢字漢字漢字漢字漢字 é́ 👍 end")
        terminal.wait_for("end$")
        self.same_as_capture("wide_characters.txt", lambda: self.last())
        terminal.press("C-a", "Right", "Right", "Right", "Right", "Right", "Right", "Right", "Delete")
        terminal.press("C-e", "BSpace", "BSpace", "BSpace", "BSpace", "BSpace", "BSpace")
        terminal.wait_for("é́$")
        terminal.press("Enter")
        terminal.wait_for("│ 漢漢字漢字漢字漢字漢字漢$|│ 漢漢字")

    def test_candidates(self):
        terminal = self.start(columns=76, rows=30)
        terminal.type("%di")
        terminal.press("Tab")
        terminal.wait_for("%dist_status")
        self.same_as_capture("magics.txt", lambda: self.last())
        terminal.press("Tab", "Tab")
        terminal.wait_for(r"▸ %diagnose$|▸ %dist_continue$")
        terminal.press("Escape")
        terminal.wait_for(r"▸ %di$")
        terminal.press("C-u")
        terminal.type("%verify net --meth")
        terminal.press("Tab")
        terminal.wait_for("--method$")
        terminal.type(" ")
        terminal.press("Tab")
        terminal.wait_for("fingerprint +choice")
        terminal.press("C-u")
        terminal.type("%%rank ")
        terminal.press("Tab")
        terminal.wait_for(r"^all +ranks 0-1\n0 +cpu\n1 +cpu$")
        terminal.press("Tab", "Tab", "Tab", "Enter")
        terminal.wait_for("%%rank 1$")
        terminal.press("C-u")
        terminal.type("pri")
        terminal.press("Tab", "Tab")
        terminal.wait_for(r"^print +void print\(std::string text\)\nprint_err +void print_err\(\)$")
        terminal.press("Tab")
        terminal.wait_for(r"▸ print$")
        self.same_as_capture("candidates.ansi", lambda: self.last(colours=True))
        terminal.enter(" taken")
        terminal.wait_for("0-1 │ taken")

    def test_paths(self):
        terminal = self.start()
        folder = os.path.join(self.state, "files")
        os.makedirs(folder + "/scripts")
        for name in ("first.cpp", "second.cpp"):
            with open(f"{folder}/{name}", "w") as file:
                file.write("// %%\nprint from " + name + "\n")
        terminal.type(f"%cd {folder[:-2]}")
        terminal.press("Tab", "Enter")
        terminal.wait_for(r"^.*/files/?$")
        terminal.type("%load s")
        terminal.press("Tab")
        terminal.wait_for(r"^scripts/ +path\nsecond.cpp +path$|^second.cpp +path\nscripts/ +path$")
        terminal.type("ec")
        terminal.press("Tab", "Enter")
        terminal.wait_for("0-1 │ from second.cpp")

    def test_signatures(self):
        terminal = self.start()
        terminal.type("int a = f(1")
        terminal.wait_for(r"^int f\(int a, int b\)\nint f\(char c\)$")
        terminal.type(", ")
        terminal.wait_for(r"f\(1, $|f\(1,$")
        terminal.type("2")
        terminal.wait_for(r"f\(1, 2\nint f")
        self.same_as_capture("signatures.ansi", lambda: self.last(colours=True))
        terminal.type(")")
        terminal.wait_for(r"f\(1, 2\)\n\Z")

    def test_search(self):
        terminal = self.start()
        for number, cell in enumerate(["print alpha", "print beta", "value 1"], 1):
            terminal.enter(cell, number + 1)
        terminal.type("kept")
        terminal.press("C-r")
        terminal.type("print")
        terminal.wait_for(r"▸ print beta\nsearch: print ")
        terminal.press("C-r")
        terminal.wait_for(r"▸ print alpha\nsearch: print ")
        terminal.press("C-r")
        terminal.wait_for(r"search: print +nothing older has it")
        terminal.press("C-s")
        terminal.wait_for(r"▸ print beta\nsearch: print ")
        terminal.press("C-g")
        terminal.wait_for(r"▸ kept\n\Z")
        terminal.press("C-r")
        terminal.type("alp")
        terminal.wait_for(r"▸ print alpha\nsearch")
        terminal.press("Enter")
        terminal.wait_for(r"▸ print alpha\n\Z")
        terminal.press("Enter")
        terminal.wait_for(r"0-1 │ alpha\n(.*\n)+0-1 │ alpha")

    def test_what_is_asked_of_the_shell(self):
        terminal = self.start(rows=70)
        for number, (cell, answer) in enumerate([("?", r"^%who +names"), ("help", r"^%who +names(.*\n)+%who +names")]):
            terminal.enter(cell)
            terminal.wait_for(answer, history=True)
            terminal.wait_for(PROMPT.format(1))
        for cell, answer in [("net??", r"^source +Fake net\{\};"), ("?net", "^declaration +Fake net"), ("%pwd", "^/.+"),
                             ("!echo from the shell", "^from the shell$"), ("%lsmagic", "^Cell magics:$"),
                             ("%dist_status   // what every rank does", "^rank +state"), ("%rank?", "^%rank .SPEC")]:
            terminal.press("C-l")
            terminal.enter(cell)
            terminal.wait_for(answer)
            terminal.wait_for(PROMPT.format(1))

    def test_an_editor_of_ones_own(self):
        terminal = self.start(EDITOR="sh -c 'echo \"print from the editor\" > $1' sh")
        terminal.type("print typed")
        terminal.press("F2")
        terminal.wait_for("▸ print from the editor$")
        terminal.press("Enter")
        terminal.wait_for("0-1 │ from the editor")
        terminal.enter("%edit 7")
        terminal.wait_for("✗ there is no cell 7; %history lists them")

    def test_an_earlier_cell_in_an_editor(self):
        terminal = self.start(EDITOR="sed -i s/one/two/")
        terminal.enter("print one", 2)
        terminal.enter("%edit")
        terminal.wait_for("▸ print two$")
        terminal.press("Enter")
        terminal.wait_for("0-1 │ two")

    def test_undo_and_cuts(self):
        terminal = self.start()
        terminal.type("print one two")
        terminal.press("C-w", "C-w")
        terminal.wait_for("▸ print$")
        terminal.press("C-y", "C-_", "C-_")
        terminal.wait_for("▸ print one$")
        terminal.press("C-a", "C-k")
        terminal.wait_for(PROMPT.format(1))
        terminal.press("C-y")
        terminal.wait_for("▸ print one$")

    def test_suspended_and_continued(self):
        state = tempfile.mkdtemp(prefix="ls-")
        self.addCleanup(shutil.rmtree, state, ignore_errors=True)
        terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], 80, 30,
                            dict(LOCKSTEP_BIN=FAKES, XDG_STATE_HOME=state, XDG_RUNTIME_DIR=state, PS1="bash> "))
        self.addCleanup(terminal.close)
        terminal.wait_for(r"^bash> *\n?\Z")
        terminal.enter(LOCKSTEP + " -n 2", 1)
        terminal.type("print kept")
        terminal.wait_for("kept$")
        terminal.press("C-z")
        terminal.wait_for("Stopped")
        terminal.enter("stty -a | grep -o -w -e -icanon -e icanon; fg")
        terminal.wait_for("^icanon$")
        terminal.wait_for("▸ print kept$")
        terminal.press("Enter")
        terminal.wait_for("0-1 │ kept")
        # Continued by another process, without a shell that sets the terminal back meanwhile.
        bash = terminal.tmux("display-message", "-p", "-t", "test", "#{pane_pid}").strip()
        (program,) = children(bash)
        os.kill(program, signal.SIGCONT)
        terminal.press("C-d")
        terminal.wait_for(r"^bash> *\n?\Z")
        terminal.enter("stty -a | grep -o -w -e -icanon -e icanon")
        terminal.wait_for(r"^icanon\nbash> *\n?\Z")


if __name__ == "__main__":
    unittest.main()
