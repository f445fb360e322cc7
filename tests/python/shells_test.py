"""Shells that come to a job and leave it: one after the other, too late, killed, of another user, or none."""

import json
import os
import re
import signal
import subprocess
import sys
import unittest

from attached_job import Job, of, values
from ranks import LOCKSTEP, SMALL_CORE, leaves_core


class Shells(unittest.TestCase):
    def test_ranks_that_have_not_come(self):
        with Job("one rank") as job:
            job.wait_for("rank 0 has passed it")  # shells find it
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
            said = " ".join(each.get("text", "") for each in events)
            self.assertIn("rank 0: not at a breakpoint", said)
            self.assertIn("until its group's time-out ends it", said)
            self.assertEqual(values(events), [([1], "1")])
            attached.send_signal(signal.SIGINT)
            attached.stdout.read()
            attached.stdout.close()
            self.assertEqual(attached.wait(), 130)
            self.assertEqual([each["ranks"] for each in job.results()], [2, 2])

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
            job.wait_for("rank 0 has passed it")  # shells find it
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
            job.wait_for("rank 0 has passed it")  # shells find it
            job.wait_for("rank 1 waits in breakpoint")
            job.attach(text="detach\n")
            (job.folder / "attached").touch()
            job.results()  # rank 0 passes its breakpoint
            self.assertNotIn("rank 0 waits", job.output)

    def test_a_job_whose_shell_is_killed_goes_on(self):
        with Job("once", torchrun=True, LOCKSTEP_BREAKPOINT_GRACE="0.5") as job:
            job.wait_for("waits in breakpoint", times=2)
            script = job.folder / "cells.py"
            go = job.folder / "go"
            script.write_text(f"# %%\nprint('waits')\nimport os\nwhile not os.path.exists('{go}'): os.sched_yield()\nfactor = 1\n"
                              "for i in range(3): print('z' * (1 << 20))\nprint('after')\nfactor\n")
            attached = subprocess.Popen([LOCKSTEP, "attach", job.id(), "--run", str(script), "--json", "-"], env=job.environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for line in attached.stdout:
                if "waits" in line:
                    break
            attached.kill()
            attached.communicate()
            go.touch()
            job.wait_for("the shell is gone: goes on in 0.5 s", times=2)
            self.assertEqual([each["total"] for each in job.results()], [21, 41])
            self.assertEqual(len(re.findall("^after", job.output, re.M)), 2)  # written by the program after all
            self.assertEqual(job.output.count("z"), 6 << 20)

    def test_a_rank_that_crashes_at_a_prompt(self):
        with Job("once", LAUNCH_GOES_ON="1") as job:
            job.wait_for("waits in breakpoint", times=2)
            crash = f"import ctypes, os\nos.chdir({str(job.folder)!r})\n{SMALL_CORE}\nctypes.string_at(0)"
            events = job.run_cells(f"%%rank 1\n{crash}", "rank", code=5, options=["--keep-going"])
            (dead,) = of(events, "error")
            self.assertEqual((dead["ranks"], dead["type"]), ([1], "SIGSEGV"), dead)
            self.assertEqual("; its core " in dead["message"], leaves_core(), dead)
            self.assertEqual(values(events), [([0], "0")])

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
