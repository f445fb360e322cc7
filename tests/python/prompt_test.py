"""Cells at the prompt over a job: Python in the frame that has called, on the ranks that have stopped."""

import re
import sys
import unittest

from attached_job import Job, of, values


class Prompt(unittest.TestCase):
    def test_cells_run_in_the_frame_that_has_called(self):
        with Job("every", ranks=3, torchrun=True) as job:
            job.wait_for("waits in breakpoint", times=3)
            events = job.run_cells(
                "factor + 1",
                "print('step', step)\nfactor = 100 + rank; extra = [rank * each for each in range(3)]",
                "def double():\n    return factor * 2\n(lambda: double() + sum(factor for _ in extra))()",
                "global marked\nmarked = rank\nseen.append(step);",
                "%rank 1 factor = 7",
                "%rank [0,2]\nfactor",
                "%rank all\ncontinue",
                "step, factor, extra",
                "marked",
                "where",
                "%up\nrank",
                "down",
                "total = 1000")
            self.assertIn(([0], "11"), values(events))
            self.assertIn(([2], "31"), values(events))
            self.assertIn(([0, 1, 2], "step 0\n"), [(each["ranks"], each["text"]) for each in of(events, "output")])
            self.assertIn(([1], "505"), values(events))  # 202 + 303
            self.assertIn(([0], "100"), values(events))
            self.assertIn(([2], "102"), values(events))
            self.assertNotIn(([1], "7"), values(events))
            # A step later: assigned locals have gone on, what the loop assigns is new, names of cells stay.
            self.assertIn(([1], "(1, 20, [0, 1, 2])"), values(events))
            self.assertEqual([each for each in values(events) if each[1] == "1"], [([1], "1")] * 2)
            frames = [each["text"] for each in of(events, "output") if "in main" in each["text"]]
            selected = [line.split(", ")[2] for text in frames for line in text.splitlines() if line.startswith("> ")]
            self.assertEqual(selected, ["in train", "in main", "in train"])
            self.assertEqual(len(of(events, "error")), 0)
            job.wait_for("waits in breakpoint", times=6)  # the third stop, without a shell
            job.attach(text="seen\n")
            total = [each["total"] for each in job.results()]
        self.assertEqual(total, [1000 + 10 + 10, 1000 + 20 + 20, 1000 + 30 + 30])

    def test_errors_name_the_rank_and_have_its_traceback(self):
        with Job("once") as job:
            job.wait_for("waits in breakpoint", times=2)
            events = job.run_cells("def half(x):\n    return x / rank\nhalf(3)", code=1)
            (error,) = of(events, "error")
            self.assertEqual((error["ranks"], error["type"], error["where"]), ([0], "ZeroDivisionError", "cell 1, line 2"))
            self.assertIn('File "<cell 1>", line 2, in half\n    return x / rank\n', error["traceback"])
            self.assertNotIn("_prompt.py", error["traceback"])
            self.assertIn(([1], "3.0"), values(events))
            self.assertEqual([each["ranks"] for each in job.results()], [2, 2])

    def test_lines_of_a_pipe(self):
        with Job("once") as job:
            job.wait_for("waits in breakpoint", times=2)
            said = job.attach(text="for i in range(2):\n    print('round', i)\n\n%py rank * 5\nfactor?\nx x\n!echo shell\n"
                              "%verfy model\n", code=1)
            self.assertIn("0-1 │ round 0\n0-1 │ round 1\n0   = 0\n1   = 5\n", said)
            self.assertIn("factor: builtins.int", said)
            self.assertIn("SyntaxError", said)
            self.assertIn("shell\n", said)
            self.assertIn("did you mean %verify?", said)
            job.results()

    def test_a_cell_has_its_own_streams(self):
        with Job("once") as job:
            job.wait_for("waits in breakpoint", times=2)
            events = job.run_cells(  # as pytest replaces them
                "import sys, os\nsys.stdout = sys.stderr = kept = open(os.devnull, 'w')",
                "print('of a cell'); print('an error', file=sys.stderr)", "sys.stdin.read()", "input('name? ')",
                "import pdb; pdb.set_trace()", "sys.stdout is kept, sys.stdin.fileno()", code=1, options=["--keep-going"])
            self.assertEqual([(each["stream"], each["text"]) for each in of(events, "output")][:2],
                             [("stdout", "of a cell\n"), ("stderr", "an error\n")])
            self.assertEqual(values(events), [([0, 1], "''")])
            self.assertEqual([each["message"] for each in of(events, "error")][:1], ["a cell has no standard input"])
            self.assertEqual([each["type"] for each in of(events, "error")],
                             ["EOFError", "bdb.BdbQuit", "io.UnsupportedOperation"])
            job.results()

    def test_interrupt(self):
        own_handler = "import signal\nsignal.signal(signal.SIGINT, lambda *_: seen.append(1))\nseen.clear()\n"
        sleeps = "import time\nprint('sleeps')\n"
        with Job("every") as job:
            for times, cell in enumerate([sleeps + "time.sleep(1000)",
                                          own_handler + sleeps + "while not seen: time.sleep(0.01)"], start=1):
                job.wait_for("waits in breakpoint", times=2 * times)
                code, rest = job.interrupt(cell, "sleeps")
                self.assertEqual(code, 130)
                (done,) = of(rest, "cell")
                self.assertEqual(done["rank_status"], {"0": "interrupted", "1": "interrupted"})
            job.wait_for("waits in breakpoint", times=6)
            job.attach(text="")
            self.assertEqual([each["total"] for each in job.results()], [30, 60])

    def test_magics_take_names_of_python(self):
        with Job("once") as job:
            job.wait_for("waits in breakpoint", times=2)
            events = job.run_cells("%verify factor", code=1)
            (fault,) = [each for each in of(events, "finding") if each["severity"] == "fault"]
            self.assertEqual((fault["verdict"], fault["object"], fault["ranks"], fault["where"], fault["cell"]),
                             ("mismatch", "factor", [0, 1], "cell 1, line 1", 1))
            job.results()
        with Job("once") as job:
            job.wait_for("waits in breakpoint", times=2)
            events = job.run_cells("with __import__('torch').no_grad():\n    model.weight.fill_(1.5)\n"
                                   "    model.bias.zero_();", "%verify model", "%nan on model", "%nan status", "%nan off",
                                   "%collectives", "%hang", "%memory", "%stack 1", "%buckets model", code=2)
            verified = of(events, "finding")[0]
            self.assertEqual((verified["verdict"], verified["object"], verified["cell"]), ("ok", "model", 2))
            said = " ".join(each["text"] for each in of(events, "message"))
            self.assertIn("stopped at this prompt", said)
            self.assertIn("MiB resident", said)
            self.assertIn("prompt.py, line", said)
            self.assertIn("a Python job does not have it", of(events, "error")[0]["message"])
            job.results()

    def test_cells_that_call_breakpoint_fork_and_return_much(self):
        with Job("once") as job:
            job.wait_for("waits in breakpoint", times=2)
            events = job.run_cells(
                "import lockstep\nlockstep.breakpoint()\nfactor",
                "import multiprocessing, os\n"
                "child = multiprocessing.get_context('fork').Process(target=os.write, args=(1, b'of a child\\n'))\n"
                "child.start(); child.join()\nchild.exitcode",
                "'z' * 2000000")
            said = [(each["ranks"], each["text"]) for each in of(events, "output")]
            self.assertEqual([text.count("passes breakpoint()") for _, text in said], [1, 1])
            self.assertEqual([each["data"] for each in of(events, "value")], [10, 20, 0, None])
            self.assertEqual([each["total"] for each in job.results()], [30, 60])
            self.assertEqual(len(re.findall("^of a child", job.output, re.M)), 2)  # its output is the program's


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
