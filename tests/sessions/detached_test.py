"""A session of real ranks that outlives its terminal: it goes on with its cell, and the terminal that comes finds output, values and names.

Usage: detached_test.py LOCKSTEP [python]. With "python" the ranks are Python of this interpreter.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from processes import descendants, wait_gone  # noqa: E402
from terminal_screen import Program  # noqa: E402
from waiting import wait_until  # noqa: E402

LOCKSTEP = sys.argv.pop(1) if len(sys.argv) > 1 else "lockstep"
IS_PYTHON = len(sys.argv) > 1 and sys.argv[1] == "python" and bool(sys.argv.pop(1))

TEXTS = {
    "name": ("auto weight = torch::full({2}, 1.5);", "weight = torch.full((2,), 1.5)"),
    "wait": ('while (::access("{go}", F_OK) != 0) ::sched_yield(); std::cout << "meanwhile " << rank / 2 << std::endl;',
             'import os; [os.sched_yield() for _ in iter(lambda: os.path.exists("{go}"), True)]; print("meanwhile", rank // 2)'),
    "use": ("dist::all_reduce(weight); weight.sum().item<float>()", "dist.all_reduce(weight); weight.sum().item()"),
}


class Detached(unittest.TestCase):
    def test_ranks_go_on_and_names_stay(self):
        with tempfile.TemporaryDirectory(prefix="ls-") as folder:
            text = {name: each[1 if IS_PYTHON else 0].replace("{go}", f"{folder}/go") for name, each in TEXTS.items()}
            own = dict(XDG_STATE_HOME=folder, XDG_RUNTIME_DIR=folder, LC_ALL="C.UTF-8", LOCKSTEP_FOLD_TIME="2000")
            options = [f"--python={sys.executable}"] if IS_PYTHON else []

            def journal():
                return subprocess.run([LOCKSTEP, "sessions", "show", session["id"], "--json"], env=dict(os.environ, **own), text=True,
                                      capture_output=True).stdout

            first = Program([LOCKSTEP, "--detachable=10m", "-n", "2", *options], columns=160, rows=50, environment=own)
            self.addCleanup(first.__exit__)
            first.wait_for(r"^In \[1\] ranks 0-1 ▸")
            listed = json.loads(subprocess.run([LOCKSTEP, "sessions", "list", "--json"], env=dict(os.environ, **own), text=True,
                                               capture_output=True, check=True).stdout)
            (session,) = [each for each in listed if each["path"].startswith(folder)]  # others may run besides
            processes = descendants(session["pid"])
            first.send(text["name"] + "\r")
            first.wait_for(r"^In \[2\] ranks 0-1 ▸")
            first.send(text["wait"] + "\r")
            wait_until(lambda: "sched_yield" in journal())
            os.kill(first.pid, signal.SIGKILL)
            first.wait_end()
            pathlib.Path(f"{folder}/go").touch()
            wait_until(lambda: "meanwhile 0" in journal())
            second = Program([LOCKSTEP, "--resume", session["id"]], columns=160, rows=50, environment=own)
            self.addCleanup(second.__exit__)
            second.wait_for(r"^In \[3\] ranks 0-1 ▸\s*\Z")
            self.assertEqual(len(re.findall(r"^0-1 │ meanwhile 0$", second.screen.text(), re.MULTILINE)), 1, second.screen.text())
            second.send(text["use"] + "\r")
            second.wait_for(r"^0-1 = 6")
            second.wait_for(r"^In \[4\] ranks 0-1 ▸\s*\Z")
            second.send("\x04")
            self.assertEqual(second.wait_end(), 0)
            self.assertEqual(wait_gone(processes), {})

    @unittest.skipIf(IS_PYTHON, "it is the same program")
    def test_a_script_under_nohup_outlives_its_terminal(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="ls-"))
        script = pathlib.Path(folder, "script.cpp")
        script.write_text(f'#include <unistd.h>\nstd::cout << "begun" << std::endl; while (::access("{folder}/go", F_OK)) ::usleep(1000); '
                          'std::cout << "over" << std::endl;\n')
        process = subprocess.Popen(["nohup", LOCKSTEP, "run", script, "-n", "2"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env=dict(os.environ, XDG_STATE_HOME=folder, XDG_RUNTIME_DIR=folder))
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        said = ""
        while "begun" not in said:
            line = process.stdout.readline()
            self.assertTrue(line, said)
            said += line
        process.send_signal(signal.SIGHUP)
        pathlib.Path(f"{folder}/go").touch()
        said += process.stdout.read()
        self.assertEqual(process.wait(), 0, said)
        self.assertIn("│ over", said)


if __name__ == "__main__":
    unittest.main()
