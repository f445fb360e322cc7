"""Sessions whose ranks are Python: how they start and end, what cells see, and what a rank does that misbehaves."""

import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import tempfile
import unittest

from ranks import LOCKSTEP, SMALL_CORE, environment, leaves_core
from sessions import Session
from processes import descendants
from terminal_screen import Program
from tmux import PROMPT, Terminal
from waiting import wait_until


class Cells(unittest.TestCase):
    def test_names_state_and_rank_sets(self):
        run = Session("rank, world_size, str(device), get('ws'), get('lrank')", "x = torch.ones(2) * (rank + 1)",
                      "dist.all_reduce(x); x.tolist()", "%%rank 1\nx += 1", "x.sum().item()", "%rank 1 x.tolist()",
                      "up = 7", "up",
                      "set_seed(3)\nseeded = torch.Generator().manual_seed(3)",
                      "torch.rand(1).item() == torch.rand(1, generator=seeded).item()",
                      "class A:\n    pass\nimport pickle\ntype(pickle.loads(pickle.dumps(A()))) is A",
                      "import os\n[os.environ[each] for each in ('WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'MASTER_ADDR')]",
                      "%dist_mode -d", "rank", "%dist_mode -e", "%sync", "%dist_status", "%who")
        self.assertEqual(run.code, 0, run.shown)
        self.assertEqual(run.values(), [
            ([0], "(0, 2, 'cpu', 2, 0)"), ([1], "(1, 2, 'cpu', 2, 1)"), ([0, 1], "[3.0, 3.0]"), ([0], "6.0"),
            ([1], "8.0"), ([1], "[4.0, 4.0]"), ([0, 1], "7"), ([0, 1], "True"), ([0, 1], "True"),
            ([0, 1], "['2', '2', '127.0.0.1']"), ([0], "0")])
        (session,) = run.of("session")
        self.assertEqual((session["ranks"], session["backend"], session["devices"]),
                         ([0, 1], "shared_memory", {"0": "cpu", "1": "cpu"}))
        texts = [each["text"] for each in run.of("message")]
        self.assertTrue(any(each.startswith("barrier over ranks 0-1; waited:") for each in texts), texts)
        self.assertRegex(run.output(), r"A +type\n")
        self.assertNotIn("world_size", run.output())

    def test_the_backend_lockstep_over_gloo(self):
        run = Session("x = torch.ones(2)\ndist.all_reduce(x)", "dist.get_backend()", LOCKSTEP_BACKEND="gloo")
        self.assertEqual((run.code, run.of("session")[0]["backend"], run.values()), (0, "gloo", [([0, 1], "'lockstep'")]),
                         run.shown)

    def test_errors_await_and_values(self):
        run = Session("import asyncio\nasync def twice(x):\n    await asyncio.sleep(0)\n    return 2 * x",
                      "await twice(21)", "1;", "def f(x):\n    return 1 / x\n\nf(0)", "x = = 1",
                      "import sys\nsys.exit(3)", "input()", "breakpoint()", options=["--keep-going"])
        self.assertEqual(run.code, 1)
        self.assertIn("breakpoint() is passed over", run.output())
        self.assertEqual(run.values(), [([0, 1], "42")])  # and of no cell that ends with a semicolon
        self.assertEqual(run.statuses(), ["ok", "ok", "ok", "error", "error", "error", "error", "ok"])
        division, syntax, end, typed = run.of("error")
        self.assertEqual((division["type"], division["where"], division["ranks"]),
                         ("ZeroDivisionError", "cell 4, line 2", [0, 1]))
        self.assertIn("    return 1 / x\n", division["traceback"])
        self.assertEqual([each["type"] for each in (syntax, end, typed)], ["SyntaxError", "SystemExit", "EOFError"])

    def test_errors_of_what_a_magic_calls_show_the_magic(self):
        lines = ("%verify 1/0", "%verify nothing", "%verify 1 +", "%time 1/0", "%checkpoint /proc/none")
        run = Session(*(f"x = 1\n{each}" for each in lines), options=["--keep-going"])
        shown = [each.get("traceback", "") for each in run.of("error")]
        self.assertEqual(len(shown), len(lines), shown)
        for line, text in zip(lines, shown):
            self.assertIn(f"    {line.removeprefix('%time ')}\n", text)
            self.assertNotIn("__import__", text)

    def test_output_of_threads_children_and_between_cells(self):
        run = Session("import os, threading, subprocess",
                      "print('cell'); os.write(1, b'descriptor\\n'); subprocess.run(['echo', 'program'])",
                      "told = threading.Event()\n"
                      "def later():\n    told.wait(); print('thread', flush=True); done.set()\n"
                      "done = threading.Event(); threading.Thread(target=later).start()",
                      "told.set(); done.wait()",
                      "pid = os.fork()\nif pid == 0:\n    print('child', flush=True)\n    os._exit(0)\n"
                      "os.waitpid(pid, 0)[1]",
                      "print('x' * 3_000_000)")
        self.assertEqual(run.code, 0, run.shown[-2000:])
        self.assertEqual(run.output()[:-3_000_001], "cell\ndescriptor\nprogram\nthread\nchild\n")
        self.assertEqual(run.output()[-3_000_001:], "x" * 3_000_000 + "\n")

    def test_logs_warnings_and_progress_bars(self):
        run = Session("import logging, warnings\nlogging.warning('of %d', rank)\nlogging.info('left out')",
                      "logging.basicConfig(level=logging.INFO, force=True)\nlogging.getLogger('train').info('wanted')",
                      "warnings.warn('careful')",
                      "def old(): warnings.warn('old', DeprecationWarning, stacklevel=2)\nold()",
                      "from tqdm.auto import tqdm\nfor i in tqdm(range(200), desc='only', mininterval=0): pass",
                      "for i in tqdm(range(20), desc='outer', mininterval=0):\n"
                      "    for j in tqdm(range(20), desc='inner', mininterval=0, leave=False): pass",
                      LOCKSTEP_PYTHON=sys.executable)  # tqdm reads the variables of what imports it
        self.assertEqual(run.code, 0, run.shown)
        rows = [re.sub(r"\| \d+/.*", "", each) for each in run.shown.splitlines() if "┊" in each]
        self.assertEqual(sorted(rows), sorted([
            "0   ┊ WARNING:root:of 0", "1   ┊ WARNING:root:of 1", "0-1 ┊ INFO:train:wanted",
            "0-1 ┊ <cell 3>:1: UserWarning: careful", "0-1 ┊   warnings.warn('careful')",
            "0-1 ┊ <cell 4>:2: DeprecationWarning: old", "0-1 ┊   old()",
            *[f"{rank}   ┊ {bar}: 100%|██████████" for rank in (0, 1) for bar in ("only", "outer")]]), run.shown)

    def test_magics(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
            program.write("import sys\nfound = sys.argv[1:]\n")
            program.flush()
            run = Session("%timeit -n 3 -r 2 -sum(range(10))", "%%timeit -r 4\nsum(range(10))", f"%run {program.name} a b", "found", "net = torch.nn.Linear(2, 2)",
                          "%verify net", "%reset net", "%%rank 3\n1", "net", "%debug", options=["--keep-going"])
        self.assertEqual(run.values(), [([0, 1], "['a', 'b']")])
        timed = [each["data"] for each in run.of("message") if "per loop" in each["text"]]
        self.assertEqual([(each["runs"], sorted(each["ranks"])) for each in timed], [(2, ["0", "1"]), (4, ["0", "1"])])
        self.assertEqual(timed[0]["loops"], 3)
        (finding,) = run.of("finding")
        self.assertEqual((finding["inspector"], finding["verdict"]), ("verify", "mismatch"))
        self.assertIn("a rank that is not in the session; ranks are 0-1", run.shown)
        self.assertEqual([each["type"] for each in run.of("error")[-2:]], ["NameError", "usage_error"])
        self.assertIn("%debug asks for commands, and nobody types here", run.of("error")[-1]["message"])

    def test_a_notebook(self):
        cells = [{"cell_type": "code", "source": ["x = rank\n", "x"], "metadata": {}, "outputs": [],
                  "execution_count": None}]
        notebook = {"nbformat": 4, "nbformat_minor": 5, "cells": cells,
                    "metadata": {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}}
        with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as folder:
            path = pathlib.Path(folder, "cells.ipynb")
            path.write_text(json.dumps(notebook))
            done = subprocess.run([LOCKSTEP, "run", str(path), "-n", "2"], text=True, stdout=subprocess.PIPE,
                                  env=environment(XDG_RUNTIME_DIR=folder, LOCKSTEP_PYTHON=sys.executable))
        self.assertEqual(done.returncode, 0)
        self.assertIn("0   = 0\n1   = 1\n", done.stdout)


class Faults(unittest.TestCase):
    def test_a_collective_that_a_rank_skips(self):
        run = Session("%%rank 0\ndist.all_reduce(torch.ones(1))", "x = torch.ones(1); dist.all_reduce(x); x.item()",
                      options=["--keep-going"])
        self.assertEqual(run.code, 4, run.shown)
        (hang,) = run.of("finding")
        self.assertEqual((hang["verdict"], hang["severity"], hang["where"]), ("hang", "fault", "cell 1, line 2"))
        self.assertEqual(run.statuses(), ["aborted", "ok"])
        self.assertEqual(run.values(), [([0, 1], "2.0")])  # the group is whole again

    def test_collectives_that_do_not_match(self):
        run = Session("x = torch.ones(2 + rank)\ndist.all_reduce(x)", "y = torch.ones(1); dist.all_reduce(y); y.item()",
                      options=["--keep-going"])
        self.assertIn("rank 0 called all_reduce float32 [2]", run.of("error")[0]["message"])
        self.assertEqual(run.values(), [([0, 1], "2.0")])

    def test_interrupts(self):
        for cell in ("print('runs', flush=True)\nwhile True: pass",
                     "print('runs', flush=True)\nimport time\ntime.sleep(1000)",
                     "print('runs', flush=True)\nif rank == 0: dist.all_reduce(torch.ones(1))\n"
                     "else:\n    while True: pass"):
            run = Session(cell, interrupt_at="runs")
            self.assertEqual((run.code, run.statuses()), (130, ["interrupted"]), run.shown)
            self.assertNotIn("did not come back", run.shown)

    def test_time_limits(self):
        run = Session("import time", "time.sleep(1000)", "1 + 1", options=["--cell-timeout", "1", "--keep-going"])
        self.assertEqual((run.code, run.statuses()), (4, ["ok", "timeout", "ok"]), run.shown)

    def hangs(self, *cells, options=()):
        """What `--hang-timeout` finds in cells of three ranks, of which each does one thing, and the exit code. All ranks run the
        next cell."""
        does = ("import threading\ndef contend():\n    ends = []\n    def spin():\n        while not ends: pass\n"
                "    for _ in range(3): threading.Thread(target=spin).start()\n    try: spin()\n    finally: ends.append(1)\n"
                "def does(*each):\n    if each[rank] == 'threw': raise RuntimeError('no data')\n"
                "    if each[rank] == 'contends': contend()\n    if each[rank] == 'blocks': threading.Event().wait()\n"
                "    while each[rank] == 'spins': pass\n    dist.all_reduce(torch.ones(2))")
        after = "x = torch.ones(1); dist.all_reduce(x); x.item()"
        run = Session(does, *(text for each in cells for text in (f"does{tuple(each.split())}", after)), ranks=3,
                      options=["--keep-going", "--hang-timeout", "1", *options])
        self.assertEqual(run.values(), [([0, 1, 2], "3.0")] * len(cells), run.shown)
        self.assertEqual([each["state"] for each in run.of("rank") if each["state"] == "dead"], [], run.shown)
        found = [(each["cell"] // 2 - 1, each["kind"], each["ranks"], each["reference_ranks"]) for each in run.of("finding")]
        return found, run.statuses()[1::2], run.code

    def test_ranks_that_spin_while_others_wait_are_a_hang(self):
        self.assertEqual(self.hangs("spins waits waits", "spins spins waits", "waits waits waits"),
                         ([(0, "computing", [0], [1, 2]), (1, "computing", [0, 1], [2])], ["aborted", "aborted", "ok"], 4))

    def test_ranks_that_threw_while_others_wait_are_a_hang(self):
        self.assertEqual(self.hangs("threw waits waits", "threw threw waits", "threw spins waits"),
                         ([(0, "threw", [0], [1, 2]), (1, "threw", [0, 1], [2]), (2, "threw", [0], [2]),
                           (2, "computing", [1], [2])], ["error"] * 3, 1))

    def test_ranks_that_wait_for_a_lock_are_a_hang(self):
        found, statuses, code = self.hangs("blocks waits waits", "blocks blocks blocks")
        self.assertEqual([(cell, *ranks) for cell, _, *ranks in found], [(0, [0], [1, 2]), (1, [0, 1, 2], [])])
        self.assertLessEqual({kind for _, kind, *_ in found}, {"lock", "blocked"})  # as far as the C library's stack is known
        self.assertEqual((statuses, code), (["aborted", "aborted"], 4))

    def test_ranks_that_spin_while_nobody_waits_are_none(self):
        self.assertEqual(self.hangs("spins spins spins", options=["--cell-timeout", "3"]), ([], ["timeout"], 4))
        # Waiting for another thread to give the interpreter away is computing.
        self.assertEqual(self.hangs("contends contends contends", options=["--cell-timeout", "3"]), ([], ["timeout"], 4))
        self.assertEqual(self.hangs("threw spins spins", "threw threw spins", options=["--cell-timeout", "3"]),
                         ([], ["error", "error"], 1))

    def test_what_an_abort_ends(self):
        own = """import threading, time
from lockstep.prompt import _prompt
(own,) = _prompt._open
begin = type(own)._begin_cell
def stay():
    thread = threading.Thread(target=own._abort, args=("asked for",))
    try:
        thread.start()
        time.sleep(1000)
    finally: thread.join()
def begin_late(self, cell):
    type(self)._begin_cell = begin
    self._abort("asked for")
    begin(self, cell)
    self.is_told = self._told_to_stop.is_set()
def abort_in_cpp():
    run = own._cpp.run
    def run_and_abort(message):
        own._cpp.run = run
        threading.Thread(target=own._abort, args=("asked for",)).start()
        return run(message)
    own._cpp.run = run_and_abort"""
        run = Session(own, "type(own)._begin_cell = begin_late", "time.sleep(1000)", "own.is_told",
                      "try: stay()\nexcept KeyboardInterrupt: stay()",
                      "%%rank 0\nwork = dist.irecv(torch.ones(1), 1)\nstay()",
                      "abort_in_cpp()", "%%cpp\nfor (;;) ::usleep(1000);",
                      "x = torch.ones(1); dist.all_reduce(x); x.item()",
                      options=["--keep-going", "--cell-timeout", "20"])
        self.assertEqual(run.statuses(), ["ok", "ok", "aborted", "ok", "aborted", "aborted", "ok", "aborted", "ok"],
                         run.shown)
        self.assertEqual(run.values(), [([0, 1], "True"), ([0, 1], "2.0")], run.shown)

    def test_a_hang_beside_a_rank_that_does_not_answer(self):
        pids = "import os, signal, time\npids = [None] * 2; dist.all_gather_object(pids, os.getpid())"
        run = Session(pids, "%%rank 0\nos.kill(pids[1], signal.SIGSTOP)\ntry: time.sleep(1000)\n"
                      "finally: os.kill(pids[1], signal.SIGCONT)", "rank",
                      options=["--keep-going", "--hang-timeout", "1", "--cell-timeout", "30"])
        self.assertEqual(run.statuses(), ["ok", "aborted", "ok"], run.shown)
        self.assertEqual([(each["kind"], each["ranks"]) for each in run.of("finding")], [("sleeping", [0])], run.shown)

    def test_a_rank_that_dies(self):
        run = Session("x = rank", "%%rank 1\nimport os\nprint('last words')\nos._exit(3)", "x",
                      "dist.all_reduce(torch.ones(1))", "%dist_reset", "rank", options=["--keep-going"])
        self.assertEqual(run.code, 5, run.shown)
        self.assertIn("last words\n", run.output(1))
        dead, alone = run.of("error")
        self.assertEqual((dead["ranks"], dead["type"], dead["where"]), ([1], "exit", "cell 2"))
        self.assertIn("exit code 3", dead["message"])
        self.assertIn("group default needs rank 1, which is lost", alone["message"])
        self.assertEqual(run.values(), [([0], "0"), ([0], "0"), ([1], "1")])

    def test_a_rank_that_crashes(self):
        run = Session(f"%%rank 0\n{SMALL_CORE}\nimport ctypes\nctypes.string_at(0)", "rank", options=["--keep-going"])
        self.assertEqual((run.code, run.statuses()), (5, ["dead", "ok"]), run.shown)
        (dead,) = run.of("error")
        self.assertEqual((dead["type"], "its core " in dead["message"]), ("SIGSEGV", leaves_core()), dead)
        self.assertIn('File "<cell 1>", line 6', run.output(0))
        self.assertRegex(run.output(0), r"Native frames of the crash, innermost first:\n(  .+ in .+\n)+(.*\n)*.*Fatal Python error")

    def test_a_call_that_keeps_the_interpreter(self):
        # Nothing can end it but the end of the rank, which the time limit brings.
        run = Session("import ctypes\nif rank == 0: ctypes.PyDLL(None).pause()", "rank",
                      options=["--cell-timeout", "1", "--keep-going"])
        self.assertEqual(run.values(), [([1], "1")], run.shown)
        self.assertIn("rank 0 could not be interrupted and is ended", run.shown)


class Starts(unittest.TestCase):
    def lockstep(self, *arguments, **more):
        with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as folder:
            pathlib.Path(folder, "cells.py").write_text("# %%\nrank\n")
            return subprocess.run([LOCKSTEP, *arguments], env=environment(XDG_RUNTIME_DIR=folder, **more), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, input="")

    def test_interpreters(self):
        done = self.lockstep("run", "cells.py", f"--python={sys.executable}", "-n", "1")
        self.assertEqual(done.returncode, 0, done.stdout)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("python3", "python"):
                pathlib.Path(folder, name).write_text("#!/bin/sh\nexec /usr/bin/python3 -S -E \"$@\"\n")
                pathlib.Path(folder, name).chmod(0o700)
            done = self.lockstep("run", "cells.py", PATH=f"{folder}:/usr/bin:/bin", LOCKSTEP_PYTHON="")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stdout, f"{folder}/python3, .*{folder}/python.* have no torch: activate the environment")
        with tempfile.TemporaryDirectory() as folder:  # one that has torch, and no package lockstep: the next is taken
            first, second = pathlib.Path(folder, "first", "python3"), pathlib.Path(folder, "second", "python3")
            for program, script in ((first, "exit 78"), (second, f'exec {sys.executable} "$@"')):
                program.parent.mkdir()
                program.write_text(f"#!/bin/sh\n{script}\n")
                program.chmod(0o700)
            done = self.lockstep("run", "cells.py", PATH=f"{first.parent}:{second.parent}:/bin", LOCKSTEP_PYTHON="")
            self.assertEqual(done.returncode, 0, done.stdout)
            done = self.lockstep("run", "cells.py", PATH=f"{first.parent}:/bin", LOCKSTEP_PYTHON="")
            self.assertEqual(done.returncode, 3)
            self.assertIn(f"{first} has torch, and no package lockstep of this version: install its wheel there", done.stdout)
        done = self.lockstep("run", "cells.py", "--python=/nowhere/python")
        self.assertEqual(done.returncode, 3)
        self.assertIn("/nowhere/python could not be started", done.stdout)

    def test_ranks_that_can_be_no_copies(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "sitecustomize.py").write_text(
                "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n")
            run = Session("open('/proc/self/cmdline').read().count('_rank.run_as_told')",
                          "x = torch.ones(1); dist.all_reduce(x)",
                          "x.item()", PYTHONPATH=f"{folder}:{os.environ['PYTHONPATH']}", LOCKSTEP_PYTHON=sys.executable)
        self.assertEqual((run.code, run.values()), (0, [([0, 1], "1"), ([0, 1], "2.0")]), run.shown)

    def test_a_shell_that_sees_the_ranks_files_before_it_hears_of_their_start(self):
        with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as folder:
            pathlib.Path(folder, "cells.py").write_text("# %%\nrank\n")
            shell = subprocess.Popen([LOCKSTEP, "run", "cells.py", f"--python={sys.executable}", "-n", "2"],
                                     env=environment(XDG_RUNTIME_DIR=folder), text=True, cwd=folder,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.addCleanup(shell.kill)

            # What starts the ranks has been started, and imports torch.
            wait_until(lambda: any("_start" in each for each in descendants(shell.pid).values()))
            shell.send_signal(signal.SIGSTOP)
            wait_until(lambda: len(list(pathlib.Path(folder).glob("lockstep/job-*/rank-*.json"))) == 2)
            shell.send_signal(signal.SIGCONT)
            output, _ = shell.communicate()
        self.assertEqual(shell.returncode, 0, output)
        self.assertIn("0   = 0\n1   = 1\n", output)

    def test_languages_of_files(self):
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as other:
            other.write("// %%\nrank\n")
            other.flush()
            done = self.lockstep("run", "cells.py", other.name)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cells.py has Python cells, and others of the files have C++", done.stdout)

    def test_nothing_is_left_when_the_shell_is_killed(self):
        with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as folder:
            script = pathlib.Path(folder, "cells.py")
            script.write_text("# %%\nimport os, subprocess\n"
                              "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
                              "print('pids', os.getpid(), os.getppid(), child.pid, flush=True)\nwhile True: pass\n")
            process = subprocess.Popen([LOCKSTEP, "run", str(script), "-n", "2"], stdout=subprocess.PIPE, text=True,
                                       env=environment(XDG_RUNTIME_DIR=folder, LOCKSTEP_PYTHON=sys.executable))
            pids = set()
            for line in process.stdout:
                if found := re.search(r"pids (\d+) (\d+) (\d+)", line):
                    pids |= {int(each) for each in found.groups()}
                if len(pids) == 5:
                    break
            ends = [os.pidfd_open(each) for each in pids]
            process.kill()
            process.wait()
            process.stdout.close()
            for each in ends:
                self.assertTrue(select.select([each], [], [], 60)[0], "a process outlives its session")
                os.close(each)


class AtPrompt(unittest.TestCase):
    """In a terminal, where a hang is left to the user."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ls", dir="/tmp", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.terminal = Terminal([LOCKSTEP, f"--python={sys.executable}", "-n", "2"], 200, 50,
                                 environment(XDG_RUNTIME_DIR=folder.name, XDG_STATE_HOME=folder.name))
        self.addCleanup(self.terminal.close)
        self.terminal.wait_for(PROMPT.format(1))

    def test_ranks_that_are_stuck_are_freed(self):
        self.terminal.enter("if rank == 0: dist.all_reduce(torch.ones(1))", 2)
        self.assertIn("hang: rank 0 waits in all_reduce #1 (cell 1, line 1), and rank 1 has finished",
                      self.terminal.screen())
        self.terminal.enter("%hang", 2)
        self.terminal.enter("%rank 1 rank + 10", 3)
        self.assertIn("1   = 11", self.terminal.screen())
        self.terminal.enter("%rank all", 3)
        self.terminal.enter("%abort", 3)
        self.assertIn("rank 0: aborted; variables are kept", self.terminal.screen())
        self.terminal.enter("x = torch.ones(1); dist.all_reduce(x); x.item()", 4)
        self.assertIn("0-1 = 2.0", self.terminal.screen())

    def test_a_rank_that_waits_is_joined(self):
        self.terminal.enter("y = torch.ones(1)", 2)
        self.terminal.enter("%rank 0 dist.all_reduce(y)", 3)
        self.terminal.enter("%rank 1 dist.all_reduce(y)", 4)
        self.terminal.enter("y.item()", 5)
        self.assertIn("0-1 = 2.0", self.terminal.screen())

    def test_its_ranks_are_no_job_for_others(self):
        self.terminal.enter("import os; os.getpid()", 2)
        pid = re.search(r"^0 += (\d+)", self.terminal.screen(), re.MULTILINE)[1]
        done = subprocess.run([LOCKSTEP, "attach", pid], env=environment(XDG_RUNTIME_DIR=self.folder), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 2, done.stdout)
        # Tests that run beside this one may have jobs in /tmp.
        self.assertRegex(done.stdout, f"no Python job of yours|there is no job {pid};")
        listed = subprocess.run([LOCKSTEP, "sessions", "list"], env=environment(XDG_RUNTIME_DIR=self.folder), text=True,
                                stdout=subprocess.PIPE)
        self.assertIn("2", listed.stdout)

    def test_the_debugger_after_an_exception(self):
        def at_debugger(rank):
            return rf"^\(Pdb\) rank {rank}> *\n?\Z"

        def enter(text, pattern):
            self.terminal.enter(text)
            self.terminal.wait_for(pattern)

        enter("%debug", r"no cell has raised an exception[^\n]*\n" + PROMPT.format(1)[1:])
        self.terminal.enter("(lambda inner: inner / (rank - 1))(7)", 2)
        enter("%debug", at_debugger(1))  # the only rank that has raised one
        self.assertIn("1   │ > <cell 1>(1)<lambda>()\n1   │ -> (lambda inner", self.terminal.screen())
        enter("p inner * 100", r"^1   │ 700\n" + at_debugger(1)[1:])
        enter("up", at_debugger(1))
        enter("!left = inner_of_main = 5", at_debugger(1))
        enter("interact", r"interact is not possible[^\n]*\n" + at_debugger(1)[1:])
        enter("while True: pass", "while True: pass\n?\\Z")
        self.terminal.press("C-c")  # ends the command
        self.terminal.wait_for(at_debugger(1))
        self.terminal.type("p inner")
        self.terminal.press("C-c")  # ends the debugger
        self.terminal.wait_for(PROMPT.format(3))
        self.terminal.enter("%rank 1 left", 4)
        self.assertIn("1   = 5", self.terminal.screen())
        self.terminal.enter("%rank all", 4)
        self.terminal.enter("1 / 0", 5)
        enter("%debug", r"ranks 0-1 have raised an exception; name one: %debug 0\n" + PROMPT.format(5)[1:])
        enter("%debug 0", at_debugger(0))
        enter("q", PROMPT.format(6))
        self.terminal.enter("%reset --all", 7)
        enter("%debug 0", r"no cell has raised an exception on rank 0\n" + PROMPT.format(8)[1:])

    def test_completion_and_cells_of_several_lines(self):
        self.terminal.enter("only_there = 5", 2)
        self.terminal.type("only_t")
        self.terminal.press("Tab")
        self.terminal.wait_for("only_there$")
        self.terminal.press("Enter")
        self.terminal.wait_for(PROMPT.format(3))
        self.assertIn("0-1 = 5", self.terminal.screen())


class Floods(unittest.TestCase):
    """What ranks write by the megabyte, on a terminal that takes it as quickly as it comes."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ls", dir="/tmp", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.program = Program([LOCKSTEP, f"--python={sys.executable}", "-n", "2"], columns=120, rows=40,
                               environment=environment(XDG_RUNTIME_DIR=folder.name, XDG_STATE_HOME=folder.name))
        self.addCleanup(self.program.__exit__)
        self.shown_until(b"In [1]")

    def shown_until(self, text):
        shown = bytearray()
        while text not in shown[-200_000:]:  # more than one piece
            self.assertTrue(select.select([self.program.fd], [], [], 120)[0], shown[-2000:])
            shown += os.read(self.program.fd, 1 << 16)
        return bytes(shown)

    def test_a_print_of_many_megabytes_from_each_rank(self):
        self.program.send("print('QZ'[rank] * 20_000_000)\r")
        shown = self.shown_until(b"In [2]")
        for each in b"QZ":  # the end of a line is drawn again while it grows
            self.assertIn(shown.count(each), range(20_000_000, 21_000_000))
        self.program.send("for i in range(20_000): print('QZ'[rank] * 100, i)\r")
        shown = self.shown_until(b"In [3]")
        lines = {(each[0:1], int(number)) for each, number in re.findall(rb"(Q{100}|Z{100}) (\d+)\r\n", shown)}
        self.assertEqual(lines, {(each, i) for each in (b"Q", b"Z") for i in range(20_000)})
        status = pathlib.Path("/proc", str(self.program.pid), "status").read_text()
        self.assertLess(int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]), 100_000, "the shell keeps what it has shown")

    def test_an_interrupt_of_a_flood(self):
        self.program.send("while True: print('Q' * 1_000_000)\r")
        self.shown_until(b"Q" * 100_000)
        self.program.send("\x03")
        self.assertIn("ranks 0-1: interrupted".encode(), self.shown_until(b"In [2]"))
        self.program.send("'al' + 'ive'\r")
        self.shown_until(b"alive")


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
