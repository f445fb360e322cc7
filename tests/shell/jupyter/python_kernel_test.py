"""A kernel whose ranks are Python: python3 python_kernel_test.py LOCKSTEP PYTHON, where PYTHON has torch."""
import base64
import os
import subprocess
import sys
import unittest

from kernel_support import LIMIT_S, Kernel, install, results_of, spec, text_of, use_own_folders
from processes import descendants, wait_gone

use_own_folders()

from detachable import DetachableSession, prompt  # noqa: E402

LOCKSTEP, PYTHON = sys.argv.pop(1), sys.argv.pop(1)
if not os.access(PYTHON, os.X_OK):
    print(f"{PYTHON} is not there: tools/python sets it up, and tools/test does so")
    sys.exit(77)
install(LOCKSTEP, f"--python={PYTHON}", "-n", "2")


class PythonKernel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kernel = Kernel("lockstep-python")

    @classmethod
    def tearDownClass(cls):
        cls.kernel.close()

    def ok(self, code):
        reply, published = self.kernel.run(code)
        self.assertEqual(reply["status"], "ok", reply)
        return published

    def test_what_it_says_about_itself(self):
        self.assertEqual((spec("lockstep-python")["language"], spec("lockstep-python")["display_name"]),
                         ("python", "Lockstep (Python, 2 ranks)"))
        info = self.kernel.ask(self.kernel.client.kernel_info())
        self.assertEqual((info["language_info"]["name"], info["language_info"]["file_extension"]), ("python", ".py"))

    def test_the_interpreter_is_that_of_the_installation(self):
        folder = os.path.dirname(PYTHON)
        os.environ["PATH"] = folder + os.pathsep + os.environ["PATH"]
        os.environ.pop("LOCKSTEP_PYTHON", None)  # which would come before PATH
        install(LOCKSTEP, "--python", "--name", "of-path")
        self.assertEqual(spec("of-path")["argv"][-1], f"--python={folder}/python3")
        refused = subprocess.run([LOCKSTEP, "kernel", "install", "--python=/usr/bin/python3"], stderr=subprocess.PIPE,
                                 text=True, check=False)
        self.assertEqual(refused.returncode, 3)
        self.assertIn("has no torch", refused.stderr)

    def test_cells(self):
        self.ok("x = torch.ones(2) * rank\nprint('written')")
        self.assertEqual(results_of(self.ok("x.sum().item()")), ["0   = 0.0\n1   = 2.0"])
        self.assertIn("0-1 │ written", text_of(self.ok("print('written')")))
        reply, _ = self.kernel.run("1 / 0")
        self.assertEqual((reply["status"], reply["ename"]), ("error", "ZeroDivisionError"))
        self.assertIn("1 / 0", "\n".join(reply["traceback"]))

    def test_the_debugger_after_an_exception(self):
        reply, _ = self.kernel.run("%debug 1", allow_stdin=False)  # as nbconvert
        self.assertIn("nobody types here", reply["evalue"])
        self.kernel.run("(lambda inner: inner / (rank - 1))(7)")
        client = self.kernel.client
        request = client.execute("%debug", allow_stdin=True)

        def asked():
            message = client.get_stdin_msg(timeout=LIMIT_S)
            self.assertEqual((message["msg_type"], message["content"]),
                             ("input_request", {"prompt": "(Pdb) rank 1> ", "password": False}))

        asked()
        client.input("p inner * 100")
        asked()
        client.input("q")
        reply, published = self.kernel.finish(request)
        self.assertEqual(reply["status"], "ok", reply)
        self.assertIn("1   │ 700\n", text_of(published))
        request = client.execute("%debug", allow_stdin=True)
        asked()
        self.kernel.control("interrupt_request")
        self.assertEqual(self.kernel.finish(request)[0]["status"], "ok")
        self.assertEqual(results_of(self.ok("rank")), ["0   = 0\n1   = 1"])

    def test_questions(self):
        self.ok("only_there = torch.ones(1)")
        self.assertIn("only_there", self.kernel.ask(self.kernel.client.complete("only_t", 6))["matches"])
        self.assertTrue(self.kernel.ask(self.kernel.client.inspect("only_there", 3))["found"])
        self.assertEqual(self.kernel.ask(self.kernel.client.is_complete("for i in range(2):"))["status"], "incomplete")

    def test_html_and_pictures_stand_behind_their_ranks(self):
        self.ok("class Table:\n    def _repr_html_(self): return f'<table>{self.rows}</table>'\n"
                "    def __repr__(self): return 'a table'\n"
                "same, own = Table(), Table()\nsame.rows, own.rows = 5, rank")
        (shown,) = [m["content"]["data"] for m in self.ok("same") if m["msg_type"] == "display_data"]
        self.assertEqual((shown["text/html"], shown["text/plain"]), ("<table>5</table>", "a table"))
        shown = [m["content"]["data"]["text/html"] for m in self.ok("own") if m["msg_type"] == "display_data"]
        self.assertEqual(shown, ["<small>rank 0</small>", "<table>0</table>",
                                 "<small>rank 1</small>", "<table>1</table>"])
        shown = [m["content"]["data"] for m in self.ok("%%rank 0\ndisplay(same, 3)")]
        self.assertEqual([each.get("text/html") for each in shown[:2]], ["<small>rank 0</small>", "<table>5</table>"])

    def test_frames_of_pandas_and_figures_of_matplotlib(self):
        self.ok("import matplotlib.pyplot as plt, pandas")
        shown = [m["content"]["data"] for m in self.ok("pandas.DataFrame({'rank': [rank]})") if m["msg_type"] == "display_data"]
        self.assertEqual([each["text/html"] for each in shown[::2]], ["<small>rank 0</small>", "<small>rank 1</small>"])
        for rank, each in enumerate(shown[1::2]):
            self.assertRegex(each["text/html"], rf"(?s)<table.*<th>rank</th>.*<td>{rank}</td>")
        # A figure that stays open is shown at the end of the cell, and one that is the cell's value behind it.
        for cell in ("plt.plot([rank, 2]);", "figure, axes = plt.subplots(); axes.plot([rank, 2]); plt.close(); figure"):
            shown = [m["content"]["data"] for m in self.ok(cell) if m["msg_type"] == "display_data"]
            self.assertEqual([each["text/html"] for each in shown[::2]], ["<small>rank 0</small>", "<small>rank 1</small>"])
            pictures = [base64.b64decode(each["image/png"]) for each in shown[1::2]]
            self.assertEqual([each[:8] for each in pictures], [b"\x89PNG\r\n\x1a\n"] * 2)
            self.assertNotEqual(*pictures)
        self.assertFalse([m for m in self.ok("1;") if m["msg_type"] == "display_data"])

    def test_interrupt(self):
        request = self.kernel.client.execute("print('begun', flush=True)\nwhile True: pass")
        self.kernel.wait_for(request, lambda message: "begun" in str(message["content"]))
        self.kernel.interrupt()
        self.assertEqual(self.kernel.finish(request)[0]["ename"], "interrupted")
        self.assertEqual(results_of(self.ok("1 + 1")), ["2"])

    def test_nothing_is_left(self):
        kernel = Kernel("lockstep-python")
        reply, published = kernel.run("class Table:\n    def _repr_html_(self): return '<table>'\ndisplay(Table())")  # its first cell
        self.assertEqual(reply["status"], "ok", reply)
        self.assertIn("<table>", str([each["content"] for each in published]))
        processes = descendants(kernel.pid)
        self.assertGreater(len(processes), 3)  # the store, what has started the ranks, and the ranks
        kernel.close()
        self.assertEqual(wait_gone(processes), {})


class InASessionOfTheTerminal(DetachableSession):
    lockstep_program = LOCKSTEP

    def test_names_pictures_and_questions_go_to_the_notebook(self):
        del self.own["LOCKSTEP_BIN"], self.environment["LOCKSTEP_BIN"]
        first = self.start(f"--python={PYTHON}")
        self.run_cell(first, "inner = 7", 2)
        first.send("inner / (rank - 1)\r")
        first.wait_for(prompt(3) + r"\s*\Z")
        first.send("%debug\r")
        first.wait_for(r"^\(Pdb\) rank 1>\s*\Z")
        self.kill(first)
        self.lockstep("kernel", "install", "--name", "resumed", "--resume", self.id)
        kernel = Kernel("resumed", **self.own)
        self.addCleanup(kernel.close)
        reply, published = kernel.run("from IPython.display import HTML\nHTML(f'<b>{inner}</b>')")  # the question is over
        self.assertEqual(reply["status"], "ok", reply)
        self.assertIn("<b>7</b>", str([each["content"] for each in published]))
        self.assertEqual(kernel.ask(kernel.client.kernel_info())["language_info"]["name"], "python")
        request = kernel.client.execute("%debug", allow_stdin=True)
        kernel.client.get_stdin_msg(timeout=LIMIT_S)
        kernel.client.input("p rank * 100")
        kernel.client.get_stdin_msg(timeout=LIMIT_S)
        second = self.resume("--take-over")
        self.assertEqual(kernel.finish(request)[0]["ename"], "session_away")
        second.wait_for(prompt(6) + r"\s*\Z")
        second.send("%debug\r")
        second.wait_for(r"^\(Pdb\) rank 1>\s*\Z")
        second.send("\x03")
        second.wait_for(prompt(7) + r"\s*\Z")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
