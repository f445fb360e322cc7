"""Python cells in a frame of this process, without a job: which names they see and assign, in every kind of frame;
values, errors, output and interrupts that a prompt has to survive."""

import contextlib
import gc
import io
import os
import signal
import sys
import threading
import time
import unittest
import unittest.mock
import weakref

import torch

from fake_shell import FakeShell
from lockstep.prompt import _cells, _questions, _scope
from lockstep.core.report import Report

marked = 1


def run(text, frame=None, **options):
    return _cells.Cell(text, 1, frame or sys._getframe(1)).run(frame or sys._getframe(1), **options)


class Names(unittest.TestCase):
    def test_every_scope_of_a_cell_sees_the_locals_of_a_function(self):
        factor = 3
        self.assertEqual(run("[factor * each for each in range(2)]"), [0, 3])
        self.assertEqual(run("list(factor * each for each in range(2))"), [0, 3])
        self.assertEqual(run("(lambda: (lambda: factor)())()"), 3)
        self.assertEqual(run("import asyncio\nasync def twice():\n    return factor * 2\nasyncio.run(twice())"), 6)
        # Bodies of classes look names up in another way.
        self.assertEqual(run("class Net(torch.nn.Module):\n    scale = factor\n    size: torch.Size = None\n"
                             "    @torch.no_grad()\n    def forward(self, x=factor):\n        return x * self.scale\n"
                             "Net()(), Net.__module__"), (9, __name__))
        self.assertEqual(run("max = 5\nclass A:\n    value = max\nA.value, (lambda: max)()"), (5, 5))
        self.assertEqual(factor, 3)

    def test_assignments_stay(self):
        factor, extra = 3, [1]
        run("factor, extra[0] = 4, 2\nfor each in range(3): factor += each")
        self.assertEqual((factor, extra), (7, [2]))
        self.assertEqual(run("del factor\ntry:\n    factor\nexcept NameError as error:\n    found = str(error)\nfound"),
                         "name 'factor' is not defined")
        self.assertEqual(run("try:\n    1 / 0\nexcept ZeroDivisionError as extra:\n    pass\nlen([1])"), 1)
        self.assertIn("'found'", run("repr(locals())"))
        factor = 3  # Python unbound it
        run("factor = 5; own = 1", own_names=True)
        self.assertEqual((factor, run("'own' in locals()")), (3, False))

    def test_variables_that_functions_of_the_program_share(self):
        count = 0

        def bump():
            nonlocal count
            count += 1
            return count

        # What bump() does is not undone by the end of the cell, and it sees what the cell has assigned.
        self.assertEqual(run("bump(); bump()\ncount"), 2)
        self.assertEqual(count, 2)
        self.assertEqual(run("count = 10\nbump()"), 11)
        self.assertEqual(count, 11)

    def test_globals(self):
        global marked
        marked = 1
        run("def mark(value):\n    global marked\n    marked = value")
        run("mark(2)")  # in a later cell
        self.assertEqual((marked, run("mark(marked + 1)\nmarked"), marked), (2, 3, 3))
        self.assertTrue(run("'marked' in globals() and globals().get('nothing') is None and globals()['marked'] == 3"))

    def test_globals_that_a_cell_assigns(self):
        global marked
        marked = 1

        def read():
            return marked

        # The program sees them at once.
        self.assertEqual(run("global marked\nmarked = 5\nread(), marked, (lambda: marked)()"), (5, 5, 5))
        self.assertEqual(run("if True:\n    global marked\n    marked += 1\nread()"), 6)
        self.assertEqual(run("global marked\nmarked = 7\nread()", own_names=True), 7)
        run("global marked\ndel marked")
        self.assertNotIn("marked", globals())
        run("global marked\nmarked = 1")
        self.assertNotIn("marked", locals())
        with self.assertRaisesRegex(SyntaxError, "before global"):
            run("marked = 1\nglobal marked")

    def test_functions_of_cells_that_the_program_calls_later(self):
        factor, later = 3, []
        run("later.append(lambda: factor)")
        factor = 4
        self.assertEqual(run("factor = 5\nlater[0]()"), 5)
        frame = sys._getframe()
        _scope.forget_values(frame)  # as when the prompt ends
        factor = 6
        self.assertEqual(later[0](), factor)

    def test_locals_that_write_through(self):
        """As from Python 3.13 on, where a variable of a function can't be unbound through its frame."""
        class WritesThrough(dict):
            def __delitem__(self, name):
                raise ValueError("cannot remove local variables from FrameLocalsProxy")

        class Frame:
            f_code, f_locals = sys._getframe().f_code, WritesThrough(loss=1)

        with unittest.mock.patch.object(_scope, "_COPIES", False):
            variables = _scope._Variables(Frame)
            variables["step"] = 2
            self.assertEqual(Frame.f_locals, {"loss": 1, "step": 2})
            del variables["loss"]  # which frees it
            self.assertRaises(KeyError, lambda: variables["loss"])
            self.assertEqual((Frame.f_locals["loss"], dict(variables)), (None, {"step": 2}))
            variables["loss"] = 3
            self.assertEqual((Frame.f_locals["loss"], variables["loss"]), (3, 3))

    def test_bodies_of_classes_generators_and_modules(self):
        seen = []

        class Body:
            own = 1
            seen.append(run("own = own + 1\n[own for _ in range(2)]"))

        self.assertEqual((seen[0], Body.own), ([2, 2], 2))

        def numbers(limit):
            for each in range(limit):
                yield run("limit = 2\neach + limit")

        self.assertEqual(list(numbers(1)), [2])
        names = {"here": sys._getframe, "run": run}
        exec("x = 1\nrun('x = x + 1; y = [x for _ in range(2)]')", names)
        self.assertEqual((names["x"], names["y"]), (2, [2, 2]))

    def test_a_prompt_keeps_nothing_of_the_frame(self):
        class Activation:
            pass

        def step():
            loss = Activation()
            FakeShell().serve(lambda shell: self.assertEqual(shell.value("[type(loss).__name__ for _ in range(1)]"),
                                                             "['Activation']"))
            kept = weakref.ref(loss)
            del loss
            return kept() is None

        gc.disable()  # what only the collector would find is kept
        try:
            self.assertTrue(step())
        finally:
            gc.enable()

    def test_a_cell_that_defines_a_function_does_not_keep_the_frame(self):
        class Activation:
            pass

        def step():
            loss = Activation()
            FakeShell().serve(lambda shell: self.assertIsNone(shell.run("def later(): return 1").get("error")))
            return weakref.ref(loss)

        kept = step()
        gc.collect()  # the function and the frame refer to each other
        self.assertIsNone(kept())

    def test_a_dictionary_of_locals_that_the_program_has(self):
        def outer():
            rate = 0.5  # noqa: F841
            settings = locals()
            FakeShell().serve(lambda shell: self.assertEqual(shell.value("rate"), "0.5"))
            return settings["rate"]

        self.assertEqual(outer(), 0.5)

    def test_assignments_while_questions_are_answered(self):
        factor = 0

        def ask(describe):
            while not over.is_set():
                describe({"expression": "shared"}, frame)

        shared, over, frame = [1], threading.Event(), sys._getframe()
        interval = sys.getswitchinterval()
        asking = threading.Thread(target=ask, args=(_questions.describe,))
        sys.setswitchinterval(1e-6)
        asking.start()
        try:
            for number in range(3000):
                run(f"factor = {number}")
                self.assertEqual(factor, number)
        finally:
            sys.setswitchinterval(interval)
            over.set()
            asking.join()

    def test_a_question_that_waits_holds_up_nothing(self):
        class Waits:
            def __repr__(self):
                go_on.wait()
                return "Waits()"

        def script(shell):
            shell.send("query", id=99, question={"kind": "describe", "expression": "waits"})
            self.assertEqual(shell.ask("status")["state"], "idle")
            self.assertEqual(shell.value("1"), "1")
            go_on.set()
            self.assertIn("Waits()", shell.wait_for("reply", id=99)["body"]["text"])

        go_on, waits = threading.Event(), Waits()  # noqa: F841
        self.assertEqual(FakeShell().serve(script), "continue")

    def test_answers_while_a_cell_runs_do_not_undo_it(self):
        factor = 3
        go_on = threading.Event()

        def script(shell):
            cell = shell.begin("factor = 4\nprint('assigned')\ngo_on.wait()\nfactor")
            shell.wait_for("output", cell=cell)
            described = shell.ask("describe", expression="factor")
            completed = shell.ask("complete", text="fact", offset=4)
            go_on.set()
            self.assertIn("factor: builtins.int\n4", described["text"])
            self.assertEqual(completed["candidates"], ["factor"])
            self.assertEqual(shell.value_of(cell), "4")

        FakeShell().serve(script)
        self.assertEqual(factor, 4)


class Repr:
    def __repr__(self):
        raise KeyError("no repr")


class Error(Exception):
    def __str__(self):
        raise SystemExit("no text")


class Values(unittest.TestCase):
    def test_data(self):
        """A number that C++ has no type for would end the connection to the shell."""
        self.assertEqual(_cells.data_of({"a": [1, 2.5, None, True, "é"]}), {"a": [1, 2.5, None, True, "é"]})
        for value in (10**400, -(2**63) - 1, [2**64], float("nan"), object(), "x" * (1 << 19), [[0] * (1 << 19)]):
            self.assertIsNone(_cells.data_of(value), repr(value)[:50])
        self.assertEqual(_cells.data_of(2**64 - 1), 2**64 - 1)

    def test_objects_that_fail(self):
        def script(shell):
            error = shell.value("Repr()")
            self.assertEqual((error["type"], error["message"]), ("KeyError", "'no repr'"))
            self.assertIn("in __repr__\n    raise KeyError", error["traceback"])
            self.assertEqual(shell.value("raise Error")["message"], "<its text can't be made: SystemExit>")
            self.assertEqual(shell.value("raise SystemExit(3)")["type"], "SystemExit")
            self.assertLess(len(shell.value("raise ValueError('x' * 10_000_000)")["traceback"]), 1 << 19)
            self.assertIn("RecursionError", shell.value("def down(): down()\ndown()")["traceback"])
            self.assertEqual(shell.value("10**400"), "1" + "0" * 400)
            self.assertIn("2000000 characters", shell.value("'é' * 1999998"))
            self.assertEqual(shell.value("'\\ud800'"), "'\\ud800'")
            self.assertIn("its repr() raises KeyError", shell.ask("describe", expression="broken")["text"])
            self.assertEqual(shell.value("1"), "1")

        broken = Repr()  # noqa: F841
        self.assertEqual(FakeShell().serve(script), "continue")

    def test_completion(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2))  # noqa: F841
        größe = {"a": "text"}  # noqa: F841

        def script(shell):
            def complete(text):
                answer = shell.ask("complete", text=text, offset=len(text.encode()))
                return answer["begin"], answer["candidates"]

            self.assertEqual(complete("print(mod"), (6, ["model"]))
            self.assertEqual(complete("x = model[0].wei"), (13, ["weight"]))
            self.assertEqual(complete("größe['a'].isal"), (13, ["isalnum", "isalpha"]))
            self.assertEqual(complete("grö"), (0, ["größe"]))
            self.assertEqual(complete("whil"), (0, ["while"]))
            self.assertEqual(complete("nothing."), (8, []))
            self.assertNotIn("_modules", complete("model.")[1])
            self.assertEqual(complete("model._modul"), (6, ["_modules"]))
            self.assertNotIn("__class__", complete("model._")[1])
            self.assertIn("__class__", complete("model.__cl")[1])

        FakeShell().serve(script)
        self.assertNotIn("readline", sys.modules)


class Tee:
    """As programs put into sys.stdout: it only writes."""

    def __init__(self, stream):
        self.stream = stream

    def write(self, text):
        self.stream.write(text)

    def flush(self):
        raise RuntimeError("not today")


class Output(unittest.TestCase):
    def test_without_a_standard_output(self):
        closed = io.TextIOWrapper(io.BytesIO())
        closed.close()
        for stream in (None, closed, Tee(io.StringIO())):
            with self.subTest(stream), contextlib.redirect_stdout(stream):
                def script(shell):
                    self.assertEqual(shell.value("import os\nos.system('echo of a child')"), "0")
                    self.assertEqual(shell.output(shell.cells), "of a child\n")
                    shell.run("report")
                    self.assertEqual(shell.output(shell.cells), "the table\n")

                report = Report([], 0, 0, 0.0, [], table="the table\n")
                self.assertEqual(str(report), "the table")
                FakeShell().serve(script)

    def test_a_standard_output_that_a_cell_deletes(self):
        before = sys.stdout

        def script(shell):
            self.assertIsNone(shell.run("import sys\ndel sys.stdout").get("error"))
            self.assertEqual(shell.value("2"), "2")

        try:
            self.assertEqual(FakeShell().serve(script), "continue")
        finally:
            sys.stdout = before

    def test_a_child_that_goes_on_writing(self):
        def script(shell):
            done = shell.run("import subprocess\nchild = subprocess.Popen(['yes'])\nchild.stdin")
            self.assertEqual(done["status"], "ok")
            self.assertEqual(shell.value("child.kill()\nchild.wait()"), "-9")

        FakeShell().serve(script)

    def test_a_cell_that_forks(self):
        def script(shell):
            self.assertEqual(shell.value("import os\npid = os.fork()\nif pid == 0: child.append(os.getpid())\n"
                                         "os.getpid() == here"), "True")

        here, child = os.getpid(), []  # noqa: F841
        how = FakeShell().serve(script) if not child else ""
        if os.getpid() != here:
            os._exit(0 if how == "forked" else 1)
        self.assertEqual(how, "continue")
        self.assertEqual(os.waitpid(-1, 0)[1], 0)


class Interrupts(unittest.TestCase):
    def interrupt(self, shell, text):
        cell = shell.begin(text)
        shell.wait_for("output", cell=cell)
        shell.send("interrupt", cell=cell)
        return shell.wait_for("done", cell=cell)["status"]

    def script(self, shell):
        self.assertEqual(self.interrupt(shell, "print('begins')\nwhile True: pass"), "interrupted")
        catches = "print('begins')\ntry:\n    while True: pass\nexcept KeyboardInterrupt:\n    print('caught')\n1"
        self.assertEqual(self.interrupt(shell, catches), "interrupted")
        for _ in range(200):  # at every moment of a cell, also its end
            cell = shell.begin("print('x')\n1 / 0")
            shell.send("interrupt", cell=cell)
            self.assertIn(shell.wait_for("done", cell=cell)["status"], ("interrupted", "error"))
        self.assertEqual(shell.value("1"), "1")

    def test_on_the_main_thread(self):
        before = signal.getsignal(signal.SIGINT)
        self.assertEqual(FakeShell().serve(self.script), "continue")
        self.assertEqual(signal.getsignal(signal.SIGINT), before)

    def test_on_another_thread(self):
        ended = []

        def stop():
            ended.append(FakeShell().serve(self.script))
            for _ in range(1000):  # a late one would be raised here
                time.monotonic()
            ended.append("went on")

        thread = threading.Thread(target=stop)
        thread.start()
        thread.join()
        self.assertEqual(ended, ["continue", "went on"])

    def test_of_the_program(self):
        def script(shell):
            shell.value("1")
            os.kill(os.getpid(), signal.SIGINT)
            shell.gone = True  # the prompt ends
            with contextlib.suppress(OSError):
                shell.wait_for("never")

        with self.assertRaises(KeyboardInterrupt):
            FakeShell().serve(script)

    def test_a_shell_that_is_killed(self):
        def script(shell):
            cell = shell.begin("import os, time\nos.write(2, b'begins')\nos.read(reader, 1)\n"
                               "for _ in range(40): os.write(2, b'z' * (1 << 16))\n'value'")
            shell.wait_for("output", cell=cell)
            shell.leave()
            os.write(writer, b"x")

        reader, writer = os.pipe()
        saved = os.dup(2)
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)  # more than the pipe takes: it is the program's
        try:
            self.assertEqual(FakeShell().serve(script), "lost")
        finally:
            os.dup2(saved, 2)
            for each in (saved, reader, writer):
                os.close(each)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
