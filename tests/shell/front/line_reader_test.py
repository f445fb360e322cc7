"""What a person does at the prompt: python3 line_reader_test.py PROBE [names of tests]"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from terminal_screen import Program  # noqa: E402

PROBE = sys.argv.pop(1) if len(sys.argv) > 1 else ""
SCRATCH = tempfile.TemporaryDirectory(prefix="ls-")   # short: sockets have their paths in it


def prompt(number):
    return rf"In \[{number}\] ▸"


class AtThePrompt(unittest.TestCase):
    def start(self, *arguments, **options):
        program = Program([PROBE, *arguments], extra=True, **options)
        self.addCleanup(program.__exit__)
        program.wait_for(prompt(1))
        return program

    def cells(self, program):
        return [json.loads(cell) for cell in re.findall(r"cell (\".*\")\r\n", program.raw.decode(errors="replace"))]

    def finish(self, program):
        program.send("\x04")
        self.assertEqual(program.wait_end(), 0)

    def test_one_line(self):
        program = self.start()
        program.send("int a = 1;\r")
        program.wait_for(prompt(2))
        self.finish(program)
        self.assertEqual(self.cells(program), ["int a = 1;"])

    def test_enter_continues_what_is_not_whole(self):
        program = self.start()
        program.send("for (;;) {\r")
        program.wait_for(r"for \(;;\) \{\n$|\{$")
        program.send("foo();\r}\r")
        program.wait_for(prompt(2))
        self.assertEqual(self.cells(program), ["for (;;) {\n  foo();\n}"])
        self.assertIn("In [1] ▸ for (;;) {\n  foo();\n}", program.screen.text())

    def test_an_empty_line_takes_it_as_it_is(self):
        program = self.start()
        program.send("f(\r\r")
        program.wait_for(prompt(2))
        self.assertEqual(self.cells(program), ["f("])

    def test_alt_enter_takes_it_as_it_is(self):
        program = self.start()
        program.send("f(\x1b\r")
        program.wait_for(prompt(2))
        self.assertEqual(self.cells(program), ["f("])

    def test_a_pasted_block_is_one_cell(self):
        program = self.start()
        block = "struct Net {\r\tint a;\r\r  int b;\r};\rint c = 1;\r"
        program.send("\x1b[200~" + block + "\x1b[201~")
        program.wait_for("int c = 1;")
        self.assertEqual(self.cells(program), [])
        program.send("\r")
        program.wait_for(prompt(2))
        self.assertEqual(self.cells(program), ["struct Net {\n\tint a;\n\n  int b;\n};\nint c = 1;"])

    def test_a_paste_longer_than_the_screen(self):
        program = self.start(rows=10, columns=40)
        lines = [f"int variable_{i} = {i};" for i in range(300)]
        program.send("\x1b[200~" + "\n".join(lines) + "\x1b[201~")
        program.wait_for("variable_299")
        program.send("\r")
        program.wait_for(prompt(2))
        self.assertEqual(self.cells(program), ["\n".join(lines)])

    def test_control_c_throws_away_what_is_typed(self):
        program = self.start()
        program.send("garbage {\rmore")
        program.wait_for("more")
        program.send("\x03")
        program.wait_for("cancelled")
        program.wait_for(prompt(2))
        program.send("int a;\r")
        program.wait_for(prompt(3))
        self.assertEqual(self.cells(program), ["int a;"])

    def test_control_c_behind_enter(self):
        program = self.start()
        program.send("Ctrl-C\r")
        program.wait_for("cancelled")
        program.send("int a;\r")
        program.wait_for(prompt(3))
        self.assertEqual(self.cells(program), ["int a;"])

    def test_control_d_deletes_or_ends(self):
        program = self.start()
        program.send("xab\x01\x04\r")
        program.wait_for(prompt(2))
        self.assertEqual(self.cells(program), ["ab"])
        self.finish(program)

    def test_arrows_move_in_the_cell_and_in_the_history(self):
        program = self.start(tempfile.mkdtemp(dir=SCRATCH.name) + "/history")
        program.send("one;\r")
        program.wait_for(prompt(2))
        program.send("two {\r}\r")
        program.wait_for(prompt(3))
        program.send("\x1b[A")               # the newest: two lines, cursor at the end
        program.wait_for(r"two", 3)
        program.send("\x1b[A\x05 // mark\r")  # up into its first line; Enter there makes a line
        program.wait_for(r"// mark")
        program.send("\x1b\r")
        program.wait_for(prompt(4))
        self.assertEqual(self.cells(program)[-1].split("\n")[0], "two { // mark")
        program.send("\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A")
        program.wait_for(r"^In \[4\] ▸ one;")
        program.send("\r")
        program.wait_for(prompt(5))
        self.assertEqual(self.cells(program)[-1], "one;")

    def test_history_is_kept_between_sessions(self):
        path = tempfile.mkdtemp(dir=SCRATCH.name) + "/deep/history"
        program = self.start(path)
        program.send("first {\r}\r")
        program.wait_for(prompt(2))
        program.send("zweite ä;\r")
        program.wait_for(prompt(3))
        self.finish(program)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        again = self.start(path)
        again.send("\x1b[A\r")
        again.wait_for(prompt(2))
        again.send("\x12first\x1b\x1b\r")    # Ctrl-R
        again.wait_for(prompt(3))
        self.assertEqual(self.cells(again)[0], "zweite ä;")
        self.assertTrue(self.cells(again)[1].startswith("first {"))

    def test_tab_completes(self):
        program = self.start()
        program.send("pr\t();\r")
        program.wait_for(prompt(2))
        self.assertEqual(self.cells(program), ["print();"])
        program.send("x = fo\t")
        program.wait_for("x = foo_ba")
        program.send("\t")
        program.wait_for(r"^In \[2\] ▸ x = foo_ba\nfoo_bar +void \(\)\nfoo_baz +void \(\)")
        program.send("r;\r")
        program.wait_for(prompt(3))
        self.assertEqual(self.cells(program)[-1], "x = foo_bar;")

    def test_tab_indents_at_the_beginning_of_a_line(self):
        program = self.start()
        program.send("\tint a;\r")
        program.wait_for(prompt(2))
        self.assertEqual(self.cells(program), ["  int a;"])

    def test_events_are_drawn_above_the_prompt(self):
        program = self.start(columns=40)
        typed = "for (;;) { a rather long line that wraps around\rmore"
        program.send(typed)
        program.wait_for("more")
        program.say("rank 1: killed by SIGKILL\n")
        program.wait_for("SIGKILL")
        program.wait_for(r"^\.\.\.   more")
        self.assertEqual(program.screen.text(),
                         "rank 1: killed by SIGKILL\nIn [1] ▸ for (;;) { a rather long line t\nhat wraps around\n...   more")
        program.send("}\r")
        program.wait_for(prompt(2))
        self.assertEqual(self.cells(program), ["for (;;) { a rather long line that wraps around\n  more}"])

    def test_another_size_of_the_terminal(self):
        program = self.start(columns=60)
        program.send("int abc")
        program.wait_for("int abc")
        program.resize(100, 30)
        program.send(" = 1;\r")
        program.wait_for(prompt(2))
        self.assertEqual(self.cells(program), ["int abc = 1;"])

    def test_letters_of_other_languages(self):
        program = self.start()
        program.send("auto s = \"äöü 漢字 ✗\";\r")
        program.wait_for(prompt(2))
        self.assertEqual(self.cells(program), ['auto s = "äöü 漢字 ✗";'])

    def test_an_ascii_locale(self):
        program = Program([PROBE], extra=True, environment={"LC_ALL": "C"})
        self.addCleanup(program.__exit__)
        program.wait_for(r"In \[1\]")
        program.send("int a;\r")
        program.wait_for(r"In \[2\]")
        self.assertEqual(self.cells(program), ["int a;"])


class FromAPipe(unittest.TestCase):
    def cells(self, text):
        result = subprocess.run([PROBE], input=text, capture_output=True, text=True, timeout=300, pass_fds=())
        self.assertEqual(result.returncode, 0)
        self.assertNotIn("In [", result.stdout)
        return [json.loads(line[5:]) for line in result.stdout.splitlines() if line.startswith("cell ")]

    def test_a_cell_is_what_is_whole(self):
        self.assertEqual(self.cells("int a;\nint f() {\n  return 1;\n}\nf()\n"), ["int a;", "int f() {\n  return 1;\n}", "f()"])

    def test_heads_and_continuations_stay_together(self):
        self.assertEqual(self.cells("if (a) { b; }\nelse { c; }\nstruct S\n{\n};\ntemplate <class T>\nT g(T t)\n{ return t; }\n"),
                         ["if (a) { b; }\nelse { c; }", "struct S\n{\n};", "template <class T>\nT g(T t)\n{ return t; }"])

    def test_markers_make_a_script_of_it(self):
        self.assertEqual(self.cells("// %% [markdown]\n// text\n// %% title\nint a;\nint b;\n// %%\nint c;\n"), ["int a;\nint b;", "int c;"])

    def test_the_end_takes_what_is_there(self):
        self.assertEqual(self.cells("f(\n1"), ["f(\n1"])


if __name__ == "__main__":
    unittest.main()
