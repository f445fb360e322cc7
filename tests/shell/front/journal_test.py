"""Journals of sessions: what is left of a session that is killed, a disk that is full, lists, scripts, notebooks, and running the cells
again; with the fake compiler and workers of ../core/fake, whose cells are commands: python3 journal_test.py LOCKSTEP FAKES"""
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from terminal_screen import Program  # noqa: E402
from waiting import wait_until  # noqa: E402

LOCKSTEP, FAKES = (sys.argv.pop(1), sys.argv.pop(1)) if len(sys.argv) > 2 else ("", "")
SCRATCH = tempfile.TemporaryDirectory(prefix="ls-")   # short: sockets have their paths in it
OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]


class Journals(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=SCRATCH.name)
        self.own = dict(LOCKSTEP_BIN=FAKES, XDG_STATE_HOME=self.folder, XDG_RUNTIME_DIR=self.folder, LC_ALL="C.UTF-8",
                        LOCKSTEP_FOLD_TIME="2000")
        self.environment = dict(os.environ, **self.own)

    def script(self, text, name="script.cpp"):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def lockstep(self, *words, code=0, **more):
        run = subprocess.run([LOCKSTEP, *words], env=dict(self.environment, **more), text=True, capture_output=True, cwd=self.folder)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout + run.stderr

    def folders(self):
        return glob.glob(os.path.join(self.folder, "lockstep/sessions/*"))

    def events(self, session="last", kind=None):
        lines = [json.loads(line) for line in self.lockstep("sessions", "show", session, "--json").splitlines()]
        return [each for each in lines if kind in (None, each["event"])]

    def test_a_session_that_ended_is_listed_and_shown(self):
        script = self.script("print hello\n// %% second\nrank 1 value 42\n// %%\nrank 0 print_err warn\n")
        shown = self.lockstep("run", script, "-n", "2")
        session = os.path.basename(self.folders()[0])
        self.assertIn("1 session that ended has a journal", self.lockstep("sessions", "list"))
        self.assertRegex(self.lockstep("sessions", "list", "--all"), rf"{session} +ended +2 +shared_memory .* 3\n")
        listed = json.loads(self.lockstep("sessions", "list", "--all", "--json"))
        self.assertEqual([(each["id"], each["state"], each["ranks"], each["cells"]) for each in listed if each["id"] == session],
                         [(session, "ended", 2, 3)])
        for name in (session, session[:-3], "last"):
            text = self.lockstep("sessions", "show", name)
            self.assertIn("\nstate    ended\n", text)
            for line in ("0-1 │ hello", "1   = 42", "0   ┊ warn", "✓ 2 ranks, shared_memory, LibTorch 2.11.0, fake"):
                self.assertIn(line + "\n", shown)
                self.assertIn(line + "\n", text)
            self.assertIn("▸ print hello\n", text)
            self.assertNotIn("killed", text)
        self.assertEqual([each["text"] for each in self.events(kind="input")],
                         ["print hello", "rank 1 value 42", "rank 0 print_err warn"])
        self.assertIn("there is no session 77", self.lockstep("sessions", "show", "77", code=2))

    def test_json_of_a_journal_has_the_events_of_the_run(self):
        script = self.script("print hello\nvalue 3\n// %%\nrank 1 throw boom\n")
        path = os.path.join(self.folder, "events.jsonl")
        self.lockstep("run", script, "-n", "2", "--json", path, code=1)
        with open(path) as file:
            run = [json.loads(line) for line in file]
        own = {"journal", "input", "ran", "closed"}
        kept = [each for each in self.events() if each["event"] not in own]

        def comparable(event):
            return {key: value for key, value in event.items()
                    if key not in ("time", "n", "number", "asked", "job", "file", "line", "expected")}
        self.assertEqual([comparable(each) for each in kept], [comparable(each) for each in run if each["event"] != "end"])
        self.assertEqual([each["status"] for each in self.events(kind="ran")], ["ok", "error"])

    def test_what_a_killed_session_has_shown_is_in_its_journal(self):
        """At 12 moments of a session that prints: each line that was read before the kill is there, in this order."""
        cells = "\n// %%\n".join(f"print cell {i}\nrank 1 print only {i}\nstorm 3000\nvalue {i}" for i in range(40))
        script = self.script(cells)
        moments = random.Random(7)
        for round_ in range(12):
            lines = moments.randrange(1, 400)
            run = subprocess.Popen([LOCKSTEP, "run", script, "-n", "2", "--show-code"], env=self.environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            shown = [run.stdout.readline() for _ in range(lines)]
            run.send_signal(signal.SIGKILL)
            shown += run.communicate()[0].splitlines(keepends=True)  # what had been shown by then
            session = [os.path.basename(each) for each in self.folders()
                       if os.path.basename(each).startswith(f"{run.pid}-")][0]
            text = self.lockstep("sessions", "show", session)
            self.assertIn("the session was killed here", text)
            at = 0
            for line in shown:
                if "│" not in line and " = " not in line or not line.endswith("\n"):
                    continue
                found = text.find(line, at)
                self.assertGreaterEqual(found, 0, f"round {round_}: {line!r}")
                at = found + len(line)
            self.assertGreater(at, 0)
        shutil.rmtree(os.path.join(self.folder, "lockstep", session))  # what `lockstep sessions clean` removes
        self.assertRegex(self.lockstep("sessions", "list", "--all"), rf"{session} +killed +2")

    def test_a_killed_terminal(self):
        with Program([LOCKSTEP, "-n", "2"], columns=100, rows=40, environment=self.own) as program:
            program.wait_for(r"^In \[1\] .*▸")
            program.send("print hello\r")
            program.wait_for(r"^In \[2\] .*▸")
            program.send("rank 0 print before the end\r")
            program.wait_for(r"^In \[3\] .*▸")
            # A cell is in the journal before it runs, and so are all cells before it.
            program.send("loop\r")
            program.wait_for(r"▸ loop")
            session = os.path.basename(self.folders()[0])
            wait_until(lambda: len(self.events(session, "input")) == 3)
            os.kill(program.pid, signal.SIGKILL)
            program.wait_end()
        text = self.lockstep("sessions", "show", session)
        for part in ("ranks 0-1 ▸ print hello\n0-1 │ hello\n", "▸ rank 0 print before the end\n0   │ before the end\n",
                     "▸ loop\n■ the session was killed here, or its end could not be written\n"):
            self.assertIn(part, text)
        text = self.lockstep("run", "--journal", session)
        self.assertIn("the session was killed, or the end of the journal could not be written\n", text)
        self.assertIn("left out: a cell that had not ended\n", text)

    def test_cells_run_again(self):
        script = self.script("// %% [markdown]\n// # Title\n// %% first\nprint hello\n// %%\nrank 1 throw boom\n// %%\n"
                             "%history\n// %%\nvalue 3\n")
        self.lockstep("run", script, "-n", "3", "--keep-going", "--arg", "a=b", code=1)
        text = self.lockstep("run", "--journal", "last")
        for part in ("Title", "In [1] ▸ first\n", "0-2 │ hello\n", "✗ rank 1: std::runtime_error in cell 2, line 1",
                     "• this cell failed before (error), and may fail again\n", "0-2 = 3\n"):
            self.assertIn(part, text)
        self.assertNotIn("%history", text)
        self.assertEqual(self.events(kind="journal")[0]["options"]["arguments"], {"a": "b"})
        self.assertEqual(self.events(kind="session")[0]["ranks"], [0, 1, 2])
        self.assertIn("0-1 │ hello", self.lockstep("run", "--journal", "last", "-n", "2"))
        # A cell that ended well must do so again.
        bad = self.script("rank 3 throw boom\n", "bad.cpp")
        self.lockstep("run", bad, "-n", "2")
        self.lockstep("run", "--journal", "last", "-n", "4", code=1)

    def test_a_cell_that_was_interrupted_does_not_run_again(self):
        run = subprocess.Popen([LOCKSTEP, "run", self.script("print one\n// %%\nprint begun\nloop\n"), "-n", "2"], env=self.environment,
                               text=True, stdout=subprocess.PIPE)
        for line in run.stdout:
            if "begun" in line:
                break
        run.send_signal(signal.SIGINT)
        run.communicate()
        text = self.lockstep("run", "--journal", "last")
        self.assertIn("left out: cell 2, which was interrupted", text)
        self.assertIn("0-1 │ one", text)
        self.assertNotIn("begun", text)

    def test_cells_that_are_missing_are_counted_and_the_others_keep_their_numbers(self):
        self.lockstep("run", self.script("print one\n// %%\nprint two\n// %%\nprint three\n// %%\nprint _3\n"), "-n", "2")
        session = os.path.basename(self.folders()[0])
        path = os.path.join(self.folders()[0], "cells.jsonl")
        with open(path) as file:
            lines = file.readlines()
        with open(path, "w") as file:
            file.writelines(line for line in lines if '"input":2' not in line)
        gap = "1 cell of the session is not in the journal"
        text = self.lockstep("run", "--journal", session)
        for part in (gap + "\n", "In [3] ranks 0-1 ▸ print three\n0-1 │ three\n", "In [4] ranks 0-1 ▸ print _3\n", "✓ 3 cells"):
            self.assertIn(part, text)
        shifted = "cell 3 uses _3, which is _2 there\n"
        self.assertIn(f"out.cpp; {gap}; {shifted}", self.lockstep("sessions", "show", session, "--export", "out.cpp"))
        self.assertIn(f"out.ipynb; {gap}; {shifted}", self.lockstep("sessions", "show", session, "--export", "out.ipynb"))

    def test_a_script_names_values_with_other_numbers(self):
        script = self.script("print one\n// %%\nerror no such name\n// %%\nprint three\n// %%\nprint _3\n// %%\n%save saved\n")
        text = self.lockstep("run", script, "-n", "2", "--keep-going", code=1)
        self.assertIn("saved.cpp; cell 3 uses _3, which is _2 there\n", text)
        self.assertIn("; cell 3 uses _3, which is _2 there\n", self.lockstep("sessions", "show", "last", "--export", "out.cpp"))

    def test_cells_that_load_has_run_run_again_once(self):
        self.script("print of the file\n", "loaded.cpp")
        script = self.script("print first\n// %%\n%load loaded.cpp\nprint beside\n// %%\nprint last\n// %%\n%save saved\n")
        self.lockstep("run", script, "-n", "2")
        self.lockstep("sessions", "show", "last", "--export", "out.cpp")
        lines = ["0-1 │ first", "0-1 │ beside", "0-1 │ of the file", "0-1 │ last"]
        for again in (["out.cpp"], ["saved.cpp"], ["--journal", "last"]):
            text = self.lockstep("run", *again, "-n", "2")
            self.assertEqual([line for line in text.splitlines() if "│" in line], lines, again)

    def test_scripts_and_notebooks_of_a_journal(self):
        script = self.script("// %% [markdown]\n// # Title\n// %% first\nprint hello\nvalue 3\n// %%\nrank 1 throw boom\n")
        self.lockstep("run", script, "-n", "2", code=1)
        out = os.path.join(self.folder, "out")
        self.assertIn("left out 1 that failed", self.lockstep("sessions", "show", "last", "--export", out + ".cpp"))
        with open(out + ".cpp") as file:
            self.assertEqual(file.read(), "// %% [markdown]\n// # Title\n\n// %% first\nprint hello\nvalue 3\n")
        self.assertIn("exists", self.lockstep("sessions", "show", "last", "--export", out + ".cpp", code=2))
        self.assertIn("name a .cpp", self.lockstep("sessions", "show", "last", "--export", out + ".py", code=2))
        self.lockstep("sessions", "show", "last", "--export", out + ".ipynb")
        with open(out + ".ipynb") as file:
            notebook = json.load(file)
        self.assertEqual([cell["cell_type"] for cell in notebook["cells"]], ["markdown", "code", "code"])
        self.assertEqual([cell.get("execution_count") for cell in notebook["cells"]], [None, 1, 2])
        outputs = notebook["cells"][1]["outputs"]
        self.assertEqual(outputs[0]["text"], ["0-1 │ hello\n"])
        self.assertEqual(outputs[1]["data"]["text/plain"], ["3"])
        self.assertEqual(notebook["cells"][2]["outputs"][0]["output_type"], "error")
        self.assertEqual(notebook["metadata"]["kernelspec"]["name"], "lockstep")
        # It is what a run of such a notebook stores.
        plain = dict(notebook, cells=[dict(cell, outputs=[], execution_count=None) if cell["cell_type"] == "code" else cell
                                      for cell in notebook["cells"]])
        with open(out + "-plain.ipynb", "w") as file:
            json.dump(plain, file)
        self.lockstep("run", out + "-plain.ipynb", "-n", "2", "--write", out + "-run.ipynb", code=1)
        with open(out + "-run.ipynb") as file:
            self.assertEqual(json.load(file), notebook)
        # And a script of it runs as the session did.
        self.assertIn("0-1 │ hello\n0-1 = 3\n", self.lockstep("run", out + ".cpp", "-n", "2"))

    def test_no_journal(self):
        script = self.script("print hello\n")
        self.lockstep("run", script, "--no-journal")
        self.lockstep("run", script, LOCKSTEP_JOURNAL="off")
        self.lockstep("check", script)
        self.assertEqual(self.folders(), [])
        self.assertIn("LOCKSTEP_JOURNAL has 'no'", self.lockstep("run", script, code=2, LOCKSTEP_JOURNAL="no"))
        self.assertIn("file is required", self.lockstep("run", code=2))
        self.assertIn("there is no journal", self.lockstep("run", "--journal", "last", code=2))

    def test_journals_are_removed(self):
        script = self.script("print hello\n")
        for _ in range(3):
            self.lockstep("run", script)
        first = os.path.basename(self.folders()[0])
        self.assertEqual(self.lockstep("sessions", "clean", first), f"removed the journal of {first}\n")
        self.assertEqual(len(self.folders()), 2)
        self.lockstep("run", script, LOCKSTEP_JOURNAL="sessions=1")
        self.assertEqual(len(self.folders()), 1)
        self.lockstep("sessions", "clean", "--journals")
        self.assertEqual(self.folders(), [])

    def test_a_limit_on_the_size_of_files_ends_no_session(self):
        script = self.script("storm 100000\n// %%\nprint the end\n")
        run = subprocess.run(["bash", "-c", 'ulimit -f 8; exec "$@"', "-", LOCKSTEP, "run", script, "-n", "1"], env=self.environment,
                             text=True, capture_output=True)
        self.assertIn("the end\n", run.stdout)
        self.assertEqual(run.returncode, 0, run.stdout[-2000:] + run.stderr)
        self.assertEqual(run.stdout.count("the journal of this session is not complete"), 1, run.stdout[-2000:])
        self.assertIn("File too large", run.stdout)
        self.assertEqual([each["text"] for each in self.events(kind="input")], ["storm 100000", "print the end"])
        self.assertIn("missing: could not be written", self.lockstep("sessions", "show", "last"))

    def test_a_full_disk_ends_no_session(self):
        mount = f"mount -t tmpfs -o size=64k none {self.folder}/lockstep && "
        os.mkdir(self.folder + "/lockstep")
        if subprocess.run([*OWN_MOUNTS, "sh", "-c", mount + "true"], capture_output=True).returncode != 0:
            self.skipTest("no file system can be mounted here")
        script = self.script("print before\n// %%\nstorm 200000\n// %%\nprint the end\n")
        run = subprocess.run([*OWN_MOUNTS, "sh", "-c", mount + f"XDG_RUNTIME_DIR={SCRATCH.name} {LOCKSTEP} run {script} -n 1; code=$?; "
                              f"{LOCKSTEP} sessions show last | grep -v x; exit $code"], env=self.environment, text=True,
                             capture_output=True)
        self.assertEqual(run.returncode, 0, run.stdout[-2000:] + run.stderr)
        self.assertEqual(run.stdout.count("the journal of this session is not complete"), 1, run.stdout[-2000:])
        self.assertIn("No space left on device", run.stdout)
        run, shown = run.stdout.split("✓ 3 cells")
        self.assertIn("the end\n", run)
        self.assertIn("before\n", shown)


if __name__ == "__main__":
    unittest.main()
