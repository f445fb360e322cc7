"""A journal of real cells: what comes of running them again is what came before, in C++ and in Python; of a kernel, too.

Usage: journal_test.py LOCKSTEP [python]. With "python" the ranks are Python of this interpreter.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LOCKSTEP = sys.argv.pop(1) if len(sys.argv) > 1 else "lockstep"
IS_PYTHON = len(sys.argv) > 1 and sys.argv[1] == "python" and bool(sys.argv.pop(1))

CPP = """// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(4, 2))};
};
set_seed(7);
Net net;
// %% sums
auto x = torch::arange(8, torch::kFloat).reshape({2, 4}) + rank;
dist::all_reduce(x);
x.sum().item<float>()
// %%
std::cout << "rank " << rank << " of " << world_size << std::endl;
net.fc->weight.sum().item<float>()
// %%
%verify net.fc->weight
// %%
if (rank == 1) throw std::runtime_error("replicas differ");
// %% the session goes on
rank * 10
"""
PYTHON = """# %% model
set_seed(7)
net = torch.nn.Linear(4, 2)
# %% sums
x = torch.arange(8.0).reshape(2, 4) + rank
dist.all_reduce(x)
x.sum().item()
# %%
print(f"rank {rank} of {world_size}")
net.weight.sum().item()
# %%
%verify net
# %%
if rank == 1: raise RuntimeError("replicas differ")
# %% the session goes on
rank * 10
"""


def what_came(events):
    """Output, values, errors and findings, less times."""
    kept = []
    for event in events:
        if event["event"] in ("output", "value", "error", "finding", "cell"):
            event = {key: value for key, value in event.items()
                     if key not in ("time", "n", "number", "run_ms", "compile_ms", "file", "line", "expected", "message", "data")}
            kept.append(event)
    return kept


class Journal(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="lockstep-journal-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        self.environment = dict(os.environ, XDG_STATE_HOME=str(self.folder / "state"),
                                XDG_RUNTIME_DIR=str(self.folder), LOCKSTEP_FOLD_TIME="2000", LC_ALL="C.UTF-8")
        self.suffix = ".py" if IS_PYTHON else ".cpp"
        self.options = [f"--python={sys.executable}"] if IS_PYTHON else []
        self.script = self.folder / f"session{self.suffix}"
        self.script.write_text(PYTHON if IS_PYTHON else CPP)

    def lockstep(self, *words, code=0):
        run = subprocess.run([LOCKSTEP, *map(str, words)], env=self.environment, text=True, capture_output=True, cwd=self.folder)
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        return run.stdout

    def events(self, session="last"):
        return [json.loads(line) for line in self.lockstep("sessions", "show", session, "--json").splitlines()]

    def test_the_same_comes_again(self):
        self.lockstep("run", self.script, "-n", 2, "--keep-going", *self.options, code=1)
        first = self.events()
        self.assertEqual([event["status"] for event in first if event["event"] == "ran"], ["ok", "ok", "ok", "ok", "error", "ok"])
        self.assertEqual(first[0]["language"], "python" if IS_PYTHON else "cpp")
        self.assertIn("libtorch", next(event for event in first if event["event"] == "session")["versions"])
        shown = self.lockstep("run", "--journal", "last")
        self.assertIn("this cell failed before (error), and may fail again", shown)
        again = self.events()
        self.assertNotEqual(first[0]["id"], again[0]["id"])
        self.assertEqual(what_came(again), what_came(first))

    def test_its_script_and_its_notebook_run(self):
        self.lockstep("run", self.script, "-n", 2, "--keep-going", *self.options, code=1)
        self.lockstep("sessions", "show", "last", "--export", f"out{self.suffix}")
        self.lockstep("sessions", "show", "last", "--export", "out.ipynb")
        self.lockstep("run", f"out{self.suffix}", "-n", 2, *self.options)
        self.lockstep("run", "out.ipynb", "-n", 2, "--keep-going", "--write", "run.ipynb", *self.options, code=1)

        def outputs(name):
            notebook = json.loads((self.folder / name).read_text())
            found = []
            for cell in notebook["cells"]:
                for output in cell.get("outputs", []):
                    found.append((output["output_type"], output.get("text"), output.get("ename"), output.get("execution_count")))
            return found
        # Findings have the time that they took in their text.
        self.assertEqual([each for each in outputs("out.ipynb") if each[0] != "display_data"],
                         [each for each in outputs("run.ipynb") if each[0] != "display_data"])

    def test_a_session_that_is_killed_in_a_cell(self):
        loop = "while True: pass" if IS_PYTHON else "for (;;) {}"
        line = "print('in the loop', flush=True)" if IS_PYTHON else 'std::cout << "in the loop" << std::endl;'
        mark = "#" if IS_PYTHON else "//"
        self.script.write_text(f"1 + 1\n{mark} %%\n{line}\n{loop}\n")
        run = subprocess.Popen([LOCKSTEP, "run", str(self.script), "-n", "2", *self.options], env=self.environment, text=True,
                               stdout=subprocess.PIPE, cwd=self.folder)
        shown = []
        while not shown or "│ in the loop" not in shown[-1]:
            shown.append(run.stdout.readline())
            self.assertTrue(shown[-1], shown)
        run.send_signal(signal.SIGKILL)
        run.communicate()
        text = self.lockstep("sessions", "show", str(run.pid))
        for each in shown:
            if "│" in each or " = " in each:
                self.assertIn(each, text)
        self.assertIn("the session was killed here", text)
        records = self.events()
        self.assertEqual([record["event"] for record in records if record["event"] in ("input", "ran", "closed")],
                         ["input", "ran", "input"])


if __name__ == "__main__":
    unittest.main()
