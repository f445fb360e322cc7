"""`lockstep.breakpoint()` and `lockstep attach`: a prompt over jobs under torchrun."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from ranks import HERE, environment

LOCKSTEP = str(pathlib.Path(os.environ["LOCKSTEP_BUILD"]) / "bin" / "lockstep")


LAUNCH = (str(HERE / "launch.py"),)  # starts in a fraction of the time of torchrun


class Job:
    """jobs/prompt.py under torchrun, with a runtime folder of its own."""

    def __init__(self, mode, ranks=2, launcher=("-m", "torch.distributed.run", "--standalone"), **more):
        self.temporary = tempfile.TemporaryDirectory(prefix="ls", dir="/tmp")  # a socket's path is short
        self.folder = pathlib.Path(self.temporary.name)
        self.environment = environment(XDG_RUNTIME_DIR=str(self.folder), **more)
        self.ranks = ranks
        number = str(ranks) if launcher == LAUNCH else f"--nproc_per_node={ranks}"
        command = [sys.executable, *launcher, number, str(HERE / "jobs" / "prompt.py"), str(self.folder), mode]
        self.process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, cwd=HERE / "jobs")
        self.output = ""
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.output += line
                self.changed.notify_all()
        with self.changed:
            self.output += "\nended\n"
            self.changed.notify_all()

    def wait_for(self, pattern, times=1):
        """Until that has been written so many times; fails where the job ends before."""
        with self.changed:
            self.changed.wait_for(lambda: len(re.findall(pattern, self.output)) >= times or "\nended\n" in self.output)
            assert len(re.findall(pattern, self.output)) >= times, self.output

    def attach(self, *arguments, text=None, code=0, **more):
        done = subprocess.run([LOCKSTEP, "attach", self.id(), *arguments], env={**self.environment, **more}, input=text,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{self.output}"
        return done.stdout

    def id(self):
        """Jobs of others may run, too."""
        folders = list(self.folder.glob("lockstep/job-*"))
        return folders[0].name.removeprefix("job-") if folders else "none"

    def run_cells(self, *cells, code=0, options=()):
        """The events of a script of these cells."""
        script, events = self.folder / "cells.py", self.folder / "events"
        script.write_text("".join(f"# %%\n{cell}\n" for cell in cells))
        self.attach("--run", str(script), "--json", str(events), *options, code=code)
        return [json.loads(line) for line in events.read_text().splitlines()]

    def results(self):
        self.process.wait()
        self.reader.join()
        assert self.process.returncode == 0, self.output
        return [json.loads((self.folder / f"rank-{rank}.json").read_text()) for rank in range(self.ranks)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.temporary.cleanup()


def of(events, kind):
    return [each for each in events if each["event"] == kind]


def values(events):
    return [(each["ranks"], each["text"]) for each in of(events, "value")]


class Prompt(unittest.TestCase):
    def test_cells_run_in_the_frame_that_has_called(self):
        with Job("every", ranks=3) as job:
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

    def test_ranks_that_have_not_come(self):
        with Job("one rank") as job:
            job.wait_for("rank 1 waits in breakpoint")
            attached = subprocess.Popen([LOCKSTEP, "attach", job.id(), "--run", "-", "--json", "-"], env=job.environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
            attached.stdin.write("# %%\nrank\n# %%\n!touch " + str(job.folder / "attached") + "\n"
                                 "# %%\nimport time\nwhile not seen: time.sleep(0.01)\n")
            attached.stdin.close()
            events = []
            for line in attached.stdout:
                events.append(json.loads(line))
                if "rank 0: stopped at" in events[-1].get("text", ""):
                    break
            self.assertIn("rank 0: not at a breakpoint", " ".join(each.get("text", "") for each in events))
            self.assertEqual(values(events), [([1], "1")])
            attached.send_signal(signal.SIGINT)
            attached.stdout.read()
            attached.stdout.close()
            self.assertEqual(attached.wait(), 130)
            self.assertEqual([each["ranks"] for each in job.results()], [2, 2])

    def test_interrupt(self):
        own_handler = "import signal\nsignal.signal(signal.SIGINT, lambda *_: seen.append(1))\nseen.clear()\n"
        with Job("every") as job:
            for times, cell in enumerate(["time.sleep(1000)", own_handler + "while not seen: time.sleep(0.01)"], start=1):
                job.wait_for("waits in breakpoint", times=2 * times)
                script = job.folder / "cells.py"
                script.write_text(f"# %%\nimport time\nprint('sleeps')\n{cell}\n")
                attached = subprocess.Popen([LOCKSTEP, "attach", job.id(), "--run", str(script), "--json", "-"],
                                            env=job.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                            text=True)
                for line in attached.stdout:
                    if "sleeps" in line:
                        break
                time.sleep(0.1 * (times - 1))  # the handler is installed
                attached.send_signal(signal.SIGINT)
                rest = [json.loads(line) for line in attached.communicate()[0].splitlines()]
                self.assertEqual(attached.returncode, 130)
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

    def test_cells_between_the_steps_of_a_job_that_trains(self):
        with Job("steps") as job:
            job.wait_for("trains")
            with socket.socket(socket.AF_UNIX) as agent:
                agent.connect(str(job.folder / "lockstep" / f"job-{job.id()}" / "rank-1.sock"))
                agent.sendall(b'{"request": "status"}\n')
                self.assertGreaterEqual(json.loads(agent.makefile().readline())["step"], 2)
            events = job.run_cells("step, rank", "%stack\n%hang\n%collectives -n 3", "%stop", "step", "step",
                                   "import time; time.sleep(0.2)\nkeep = False")
            (first, second) = [each["data"] for each in of(events, "value")[:2]]
            self.assertEqual((first[0], first[1], second[1]), (second[0], 0, 1))
            stopped = [each["text"] for each in of(events, "value")[2:]]
            self.assertEqual(len(stopped), 2)
            self.assertEqual(stopped[0], stopped[1])
            self.assertEqual([each["ranks"] for each in of(events, "value")[2:]], [[0, 1]] * 2)
            said = " ".join(each["text"] for each in of(events, "message"))
            self.assertIn("all_reduce", said)
            self.assertIn("in train", said)
            results = job.results()
            self.assertEqual(results[0]["total"], results[1]["total"])

    def test_stop_never_holds_ranks_at_different_steps(self):
        with Job("short steps", launcher=LAUNCH) as job:  # ranks pass the step that is asked for before all are asked
            job.wait_for("trains")
            for _ in range(2):
                events = job.run_cells("%stop", "step")
                self.assertEqual([each["ranks"] for each in of(events, "value")], [[0, 1]], events)
            job.run_cells("keep = False")
            results = job.results()
            self.assertEqual(results[0]["total"], results[1]["total"])

    def test_stop_needs_all_ranks(self):
        with Job("half counts", launcher=LAUNCH) as job:
            job.wait_for("trains")
            (error,) = of(job.run_cells("%stop", code=2), "error")
            self.assertIn("rank 1 can't be asked from here", error["message"])
            (error,) = of(job.run_cells("step", code=2), "error")
            self.assertIn("rank 1 can't be asked from here", error["message"])
            (job.folder / "attached").touch()
            job.results()

    def test_abort_frees_a_job_that_hangs(self):
        with Job("hang", launcher=LAUNCH) as job:
            job.wait_for("hangs")
            events = job.run_cells("%abort", "%abort 0 --yes")
            asked, done = [each["text"] for each in of(events, "message") if "bort" in each["text"] or "ended" in each["text"]]
            self.assertIn("%abort --yes ends the connections of all process groups of ranks 0-1", asked)
            self.assertIn("rank 0: 1 connection of Gloo ended", done)
            (job.folder / "attached").touch()
            for total in [each["total"] for each in job.results()]:
                self.assertIn("Connection closed by peer", total)  # the program has made new groups since

    def test_breakpoint_of_python_and_detach(self):
        with Job("builtin", PYTHONBREAKPOINT="lockstep.breakpoint") as job:
            job.wait_for("waits in breakpoint", times=2)
            self.assertEqual(values(job.run_cells("step")), [([0, 1], "1")])
            job.results()
        with Job("every") as job:
            job.wait_for("waits in breakpoint", times=2)
            job.attach(text="detach\n")
            self.assertEqual([each["total"] for each in job.results()], [30, 60])
            self.assertEqual(len(re.findall("waits in breakpoint", job.output)), 2)

    def test_a_shell_that_leaves_before_a_rank_stops(self):
        with Job("one rank", LOCKSTEP_BREAKPOINT_GRACE="1000") as job:
            job.wait_for("rank 1 waits in breakpoint")
            attached = subprocess.Popen([LOCKSTEP, "attach", job.id()], env=job.environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
            attached.stdin.write("print('here')\n")
            attached.stdin.flush()
            for line in attached.stdout:
                if "│ here" in line:
                    break
            attached.kill()
            attached.communicate()
            (job.folder / "attached").touch()
            job.wait_for("rank 0 waits in breakpoint")
            self.assertEqual(values(job.run_cells("rank")), [([0], "0"), ([1], "1")])
            job.results()
        with Job("one rank") as job:
            job.wait_for("rank 1 waits in breakpoint")
            job.attach(text="detach\n")
            (job.folder / "attached").touch()
            job.results()  # rank 0 passes its breakpoint
            self.assertNotIn("rank 0 waits", job.output)

    def test_a_job_whose_shell_is_killed_goes_on(self):
        with Job("once", LOCKSTEP_BREAKPOINT_GRACE="0.5") as job:
            job.wait_for("waits in breakpoint", times=2)
            script = job.folder / "cells.py"
            script.write_text("# %%\nprint('sleeps')\nimport time\ntime.sleep(1)\nfactor = 1\n"
                              "for i in range(3): print('z' * (1 << 20))\nprint('after')\nfactor\n")
            attached = subprocess.Popen([LOCKSTEP, "attach", job.id(), "--run", str(script), "--json", "-"], env=job.environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for line in attached.stdout:
                if "sleeps" in line:
                    break
            attached.kill()
            attached.communicate()
            job.wait_for("the shell is gone: goes on in 0.5 s", times=2)
            self.assertEqual([each["total"] for each in job.results()], [21, 41])
            self.assertEqual(len(re.findall("^after", job.output, re.M)), 2)  # written by the program after all
            self.assertEqual(job.output.count("z"), 6 << 20)

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

    def test_another_shell_takes_over(self):
        with Job("once", LOCKSTEP_BREAKPOINT_GRACE="1000") as job:
            job.wait_for("waits in breakpoint", times=2)
            attached = subprocess.Popen([LOCKSTEP, "attach", job.id()], env=job.environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
            attached.stdin.write("factor = 5\n%rank 0 print('set')\n")
            attached.stdin.flush()
            for line in attached.stdout:
                if "│ set" in line:
                    break
            attached.kill()
            attached.communicate()
            job.wait_for("the shell is gone: goes on in 1000 s", times=2)
            self.assertEqual(values(job.run_cells("factor")), [([0, 1], "5")])
            self.assertEqual([each["total"] for each in job.results()], [25, 45])

    def test_cpp_cells_share_tensors_with_python(self):
        with Job("once") as job:
            job.wait_for("waits in breakpoint", times=2)
            events = job.run_cells(
                '%%cpp\nauto& w = py::tensor("model.weight");\nint calls = 0;\nw.requires_grad()',
                "%%cpp\ntorch::NoGradGuard no_grad;\nw.fill_(rank + 2);\n++calls;\nshow(calls);\nw.sum().item<float>()",
                "model.weight.sum().item(), model.weight.requires_grad and torch.is_grad_enabled()",
                "%%cpp\nw.sum().backward();\n(w * 2).sum().backward();",
                "model.weight.grad.sum().item()",
                '%%cpp\nstd::cout << "of C++" << std::endl;\npy::set("extra", torch::ones(3) * rank);\npy::number("factor")',
                "extra, extra.sum().item()",
                "%%cpp\n%%rank 1\nstruct Point { int x, y; };\nPoint{1, calls}",
                "%cpp rank * 10 + world_size",
                "%%cpp\nint calls(int x) { return x + 100; }\ncalls(1)",
                '%%cpp\ninspect::verify(py::tensor("model.bias").detach().abs() * 0);',
                "%%cpp\nauto sum = torch::ones(1) * (rank + 1);\ndist::all_reduce(sum);\nsum.item<float>()")
            self.assertEqual(of(events, "error"), [])
            self.assertEqual(values(events), [
                ([0, 1], "true"), ([0, 1], "1"), ([0], "16"), ([1], "24"),
                ([0], "(16.0, True)"), ([1], "(24.0, True)"), ([0, 1], "24.0"),
                ([0], "10"), ([1], "20"), ([0], "(tensor([0., 0., 0.]), 0.0)"), ([1], "(tensor([1., 1., 1.]), 3.0)"),
                ([1], "Point{.x = 1, .y = 1}"), ([0], "2"), ([1], "12"), ([0, 1], "101"), ([0, 1], "3")])
            self.assertEqual([(each["ranks"], each["text"]) for each in of(events, "output")], [([0, 1], "of C++\n")])
            (finding,) = of(events, "finding")
            self.assertEqual((finding["verdict"], finding["where"]), ("ok", "cell 11, line 2"))
            self.assertEqual([each["total"] for each in job.results()], [30, 60])

    def test_errors_of_cpp_cells(self):
        with Job("once") as job:
            job.wait_for("waits in breakpoint", times=2)
            events = job.run_cells(
                "%%cpp\nint half(int x) {\n  if (x > 0) throw std::runtime_error(\"too much\");\n  return x;\n}\nint kept = 5;\n"
                "half(rank)",
                "%%cpp\nhalf(", "%%cpp\nunknown + 1", "%%cpp\nkept", "%%cpp\ntorch::ones(2).matmul(torch::ones(3))",
                '%%cpp\npy::tensor("no_such")', '%%cpp\npy::tensor("factor")', '%%cpp\npy::tensor("model")',
                '%%cpp\npy::set("model.weight", torch::ones(1))', '%%cpp\npy::number("seen")', "factor",
                code=1, options=["--keep-going"])
            thrown, *rest = of(events, "error")
            self.assertEqual((thrown["ranks"], thrown["type"], thrown["message"], thrown["where"]),
                             ([1], "std::runtime_error", "too much", "cell 1, line 3"))
            self.assertIn("half(int) at cell 1, line 3", thrown["stack"][0])
            said = [(each["type"], each["ranks"], each["message"]) for each in rest]
            self.assertEqual([each[0] for each in said], ["compile_error"] * 2 + ["c10::Error"] + ["lockstep::py::Error"] * 6)
            self.assertEqual([each[1] for each in said[3:]], [[0, 1]] + [[0], [1]] + [[0, 1]] * 3)
            job.results()

    def test_interrupt_of_a_cpp_cell_and_one_that_crashes(self):
        with Job("every") as job:
            job.wait_for("waits in breakpoint", times=2)
            script = job.folder / "cells.py"
            script.write_text("# %%\n%%cpp\nvolatile int turns = 0;\nputs(\"loops\");\nfor (;;) ++turns;\n")
            attached = subprocess.Popen([LOCKSTEP, "attach", job.id(), "--run", str(script), "--json", "-"],
                                        env=job.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for line in attached.stdout:
                if '"loops' in line:
                    break
            attached.send_signal(signal.SIGINT)
            rest = [json.loads(line) for line in attached.communicate()[0].splitlines()]
            self.assertEqual(attached.returncode, 130)
            (done,) = of(rest, "cell")
            self.assertEqual(done["rank_status"], {"0": "interrupted", "1": "interrupted"})
            job.wait_for("waits in breakpoint", times=4)
            # Another shell, which has no names yet. Its own live on beyond `continue`; what they hold of Python does not.
            events = job.run_cells(
                '%%cpp\nint turns = 7;\nauto& w = py::tensor("model.weight");\nturns', "continue",
                "%%cpp\n++turns", "%%cpp\nw.defined()", '%%cpp\npy::tensor("model.weight").is_same(w)',
                "%%cpp\nif (rank == 1) *(volatile int*)nullptr = 1;\nrank", code=5)
            self.assertEqual(values(events)[:4], [([0, 1], "7"), ([0, 1], "8"), ([0, 1], "false"), ([0, 1], "true")])
            errors = [(each["type"], each["ranks"], each["where"]) for each in of(events, "error")]
            self.assertIn(("SIGSEGV", [1], "cell 5"), errors)
            self.assertEqual(job.process.wait(), 1)  # torchrun's

    def test_no_shell_comes(self):
        with Job("once", LOCKSTEP_BREAKPOINT_TIMEOUT="0.1") as job:
            self.assertEqual([each["total"] for each in job.results()], [30, 60])
            self.assertIn("no shell came within 0.1 s", job.output)
            said = job.attach(code=2)
            self.assertRegex(said, "no Python job of yours|there is no job")

    def test_nobody_else_can_attach(self):
        with Job("once") as job:
            job.wait_for("waits in breakpoint", times=2)
            sockets = list(job.folder.glob("lockstep/job-*/rank-*.sock"))
            self.assertEqual(len(sockets), 2)
            for path in [sockets[0].parent, *sockets[0].parents[1:2]]:
                self.assertEqual(path.stat().st_mode & 0o777, 0o700)
            if os.geteuid() == 0:
                code = ("import os, socket, sys; os.setuid(65534)\n"
                        "try:\n  socket.socket(socket.AF_UNIX).connect(sys.argv[1])\n"
                        "except PermissionError:\n  sys.exit(7)")
                done = subprocess.run([sys.executable, "-c", code, str(sockets[0])])
                self.assertEqual(done.returncode, 7)
            job.attach(text="")
            job.results()


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
