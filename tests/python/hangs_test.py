"""`lockstep run -- torchrun … train.py`: jobs that hang, fail or go on (jobs/hangs.py), which nobody has edited."""

import contextlib
import functools
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from ranks import HAS_HOOKS, HERE, LOCKSTEP, WatchedJob, environment, launcher, line_in
from processes import children, start_time
from waiting import wait_until

line_of = functools.partial(line_in, HERE / "jobs" / "hangs.py")


class Cases(unittest.TestCase):
    def run_case(self, case, code, *options, ranks=2, torchrun=False, script="hangs.py", command=None, **more):
        launched = [*(command or launcher(ranks, torchrun, copied=True)), script, case]
        job = WatchedJob(lambda folder: launched, *options, **more)
        self.assertEqual(job.code, code, job.errors[-6000:])
        self.assertEqual(job.left, [], "the job's folder stays")
        return job


class Hangs(Cases):
    def hang(self, case, **more):
        # Calls that differ would raise before that (hooks_test.py).
        job = self.run_case(case, 4, "--hang-timeout", "3", LOCKSTEP_CHECK_COLLECTIVES="0", **more)
        (fault,) = job.faults
        self.assertEqual(fault, job.findings[-1], "the first cause is not last")
        return fault

    def waits_for(self, case, kind, words, line, **more):
        # Variables of a batch script under Slurm, which torchrun has, too: it is no rank.
        fault = self.hang(case, SLURM_PROCID="0", SLURM_NTASKS="2", **more)
        self.assertEqual((fault["verdict"], fault["kind"], fault["ranks"], fault["reference_ranks"]),
                         ("hang", kind, [1], [0]))
        self.assertEqual((fault["op"]["name"], fault["op"]["seq"], fault["op"]["shape"]), ("all_reduce", 4, [4, 3]))
        self.assertIn(f"rank 1 {words} (", fault["message"])
        self.assertIn(f"hangs.py:{line_of(line)} in", fault["message"])
        self.assertEqual("by the Flight Recorder" in fault["message"], not HAS_HOOKS)  # likely, or proven
        self.assertIn(f"hangs.py:{line_of('dist.all_reduce(torch.ones(4, 3))')} in steps", fault["where"])

    def test_a_rank_that_sleeps(self):
        self.waits_for("sleeps", "sleeping", "sleeps", "time.sleep(FOREVER)  # the culprit", torchrun=True)

    def test_a_rank_that_waits_for_a_lock(self):
        self.waits_for("locked", "lock", "waits for a lock", "lock.acquire()  # again")

    def test_a_rank_that_waits_for_its_loader(self):
        self.waits_for("loader", "loading_data", "waits for its data loader", "for _ in torch.utils.data.DataLoader")

    def test_a_rank_that_computes(self):
        self.waits_for("spins", "computing", "computes", "while True: pass")

    def test_another_collective(self):
        fault = self.hang("mismatch", ranks=3)  # a majority
        self.assertEqual((fault["verdict"], fault["ranks"], fault["reference_ranks"]), ("op_mismatch", [1], [0, 2]))
        self.assertIn(f"hangs.py:{line_of('dist.all_reduce(torch.ones(2, 2))')} in mismatch", fault["message"])
        self.assertIn(f"hangs.py:{line_of('dist.broadcast(')} in mismatch", fault["message"])

    def test_another_shape(self):
        fault = self.hang("shapes", ranks=3)
        self.assertEqual((fault["verdict"], fault["ranks"], fault["op"]["shape"]), ("shape_mismatch", [1], [5]))

    def test_a_rank_that_the_script_has_started(self):
        fault = self.hang("sleeps", script="spawn.py", command=[sys.executable])
        self.assertEqual((fault["verdict"], fault["kind"], fault["ranks"]), ("hang", "sleeping", [1]))
        self.assertIn("spawn.py:", fault["where"])

    def test_another_order_of_groups(self):
        job = self.run_case("order", 4, "--hang-timeout", "3", ranks=3)
        (fault,) = job.faults
        self.assertEqual((fault["verdict"], fault["kind"]), ("hang", "other_collective"))
        self.assertIn("none of them can continue", fault["message"])


class Failures(Cases):
    def first_cause(self, case, code, **more):
        return self.cause_of(self.run_case(case, code, **more))

    def cause_of(self, job):
        self.assertEqual(job.findings[-1]["severity"], "fault", job.errors[-4000:])
        self.assertEqual(len(job.faults), 1, job.faults)
        return job.findings[-1]

    def test_a_rank_that_finished_early(self):
        fault = self.first_cause("returned", 4, ranks=3, torchrun=True)
        self.assertEqual((fault["verdict"], fault["kind"], fault["ranks"]), ("hang", "finished", [1]))
        self.assertIn(f"hangs.py:{line_of('dist.all_reduce(torch.ones(4, 3))')} in steps", fault["where"])

    def test_an_exception(self):
        job = self.run_case("threw", 1, "--tail", "2", torchrun=True)
        # A group that was not destroyed has threads, which may end the interpreter with a line behind the exception's.
        self.assertRegex(job.errors,
                         r"  rank 1, standard error:\n(?:    .*\n)?    \[rank1\]: ValueError: no such sample: 17\n")
        fault = self.cause_of(job)
        self.assertEqual((fault["verdict"], fault["kind"], fault["ranks"]), ("dead", "threw", [1]))
        self.assertIn("rank 1 raised ValueError: no such sample: 17", fault["message"])
        self.assertIn(f"hangs.py:{line_of('raise ValueError')} in threw", fault["where"])

    def test_an_exception_of_a_rank_that_the_script_has_started(self):
        fault = self.first_cause("threw", 1, script="spawn.py", command=[sys.executable])
        self.assertIn("rank 1 raised ValueError: no such sample: 17", fault["message"])

    def test_sizes_that_end_a_process_of_gloo(self):
        job = self.run_case("shapes", 1, LOCKSTEP_CHECK_COLLECTIVES="0")
        fault = self.cause_of(job)
        self.assertEqual((fault["verdict"], fault["ranks"], fault["op"]["seq"]), ("shape_mismatch", [0, 1], 4))
        self.assertIn("rank 0 called all_reduce float32 [4]", fault["message"])
        self.assertIn("rank 1 called all_reduce float32 [5]", fault["message"])
        gloo = next(each["message"] for each in job.findings if "EnforceNotMet" in each["message"])
        self.assertIn("op.preamble.length <= op.nbytes", gloo)
        self.assertIn('init_process_group("lockstep")', gloo)

    def test_a_rank_that_failed_before_it_could_be_watched(self):
        fault = self.first_cause("exited", 5, script="early.py", torchrun=True)
        self.assertEqual(fault["ranks"], [1])
        self.assertIn("rank 1 ended with exit code 7 before it was watched", fault["message"])

    def test_a_signal(self):
        fault = self.first_cause("killed", 5)
        self.assertEqual((fault["verdict"], fault["kind"], fault["ranks"]), ("dead", "died", [1]))
        self.assertIn("was killed by SIGKILL", fault["message"])

    def test_a_launcher_that_goes_on_after_a_failure(self):
        job = self.run_case("left", 5, "--hang-timeout", "5", LAUNCH_GOES_ON="1")
        self.assertIn("rank 1 ended with exit code 3", job.findings[-1]["message"])

    def test_an_exit_code(self):
        fault = self.first_cause("exited", 5)
        self.assertIn("rank 1 ended with exit code 3", fault["message"])


    def test_a_job_that_slurm_preempts(self):
        """What has left nothing was ended by Slurm; who failed by itself did so before."""
        with tempfile.TemporaryDirectory() as folder:
            scontrol = pathlib.Path(folder, "scontrol")
            scontrol.write_text("#!/bin/sh\necho JobId=7 JobState=RUNNING PreemptTime=2026-01-01T00:00:00\n")
            scontrol.chmod(0o755)
            slurm = {"SLURM_JOB_ID": "7", "PATH": f"{folder}:{os.environ['PATH']}"}
            job = self.run_case("vanished", 130, **slurm)
            self.assertIn("Slurm preempts job 7", job.errors)
            self.assertEqual(job.faults, [])
            job = self.run_case("threw", 1, **slurm)
            self.assertIn("Slurm preempts job 7", job.errors)
            self.assertEqual([fault["ranks"] for fault in job.faults], [[1]])


class Healthy(Cases):
    def test_a_job_that_is_started_again(self):
        # A store that outlives the attempt has the addresses of its ranks, which Gloo may try to connect to.
        job = self.run_case("restarted", 0, torchrun=["--max-restarts=1"], TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        self.assertIn("lockstep: the launcher starts the ranks again; of the attempt before:\n", job.errors)
        (note,) = job.findings
        self.assertEqual((note["severity"], note["ranks"]), ("note", [1]))
        self.assertIn("rank 1 raised ValueError: the first time", note["message"])

    def test_a_job_without_a_fault(self):
        job = self.run_case("healthy", 0, "--hang-timeout", "8")
        # On a busy machine a rank may wait for a processor, and is a straggler then.
        self.assertEqual([each for each in job.findings if each["verdict"] != "straggler"], [], job.errors)
        if not job.findings:
            self.assertEqual(job.errors, "")
        self.assertEqual(job.output.splitlines(), ["rank 0 is done"], "output is not passed through")

    def test_without_agents_the_exit_code_is_the_launchers(self):
        self.run_case("healthy", 0, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        job = self.run_case("threw", 1, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        self.assertIn("No rank could be watched", job.errors)


class Ends(unittest.TestCase):
    def start(self, folder, case, *options, **more):
        job = subprocess.Popen(
            [LOCKSTEP, "run", *options, "--", *launcher(2, copied=True), "hangs.py", case],
            cwd=HERE / "jobs", env=environment(XDG_RUNTIME_DIR=folder, HANGS_SAYS="pid", **more),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return job, [int(job.stdout.readline()) for _ in range(2)]

    def is_watched(self, job, pid):
        """Whether it has a descriptor of the process."""
        for each in pathlib.Path(f"/proc/{job.pid}/fdinfo").glob("*"):
            with contextlib.suppress(FileNotFoundError):  # it was closed
                if f"Pid:\t{pid}\n" in each.read_text():
                    return True
        return False

    def test_a_signal_ends_the_job(self):
        with tempfile.TemporaryDirectory(prefix="ls-") as folder:
            job, ranks = self.start(folder, "sleeps")
            job.send_signal(signal.SIGINT)
            job.communicate()
            self.assertEqual(job.returncode, 130)
            self.assertEqual([each for each in ranks if start_time(each)], [])
            self.assertEqual(list(pathlib.Path(folder).glob("lockstep/*")), [])

    def test_6_a_job_that_hangs_is_ended_though_nobody_reads(self):
        with tempfile.TemporaryDirectory(prefix="ls-") as folder:
            job, ranks = self.start(folder, "sleeps", "--hang-timeout", "3")
            job.stdout.close()
            job.stderr.close()
            self.assertEqual(job.wait(), 4)
            self.assertEqual([each for each in ranks if start_time(each)], [])

    def test_a_signal_after_a_failure(self):
        with tempfile.TemporaryDirectory(prefix="ls-") as folder:
            job, (first, second) = self.start(folder, "left", LAUNCH_GOES_ON="1")
            ranks = {os.pidfd_open(pid): pid for pid in (first, second)}
            (dead,), _, _ = select.select(ranks, [], [])
            time.sleep(0.5)
            wait_until(lambda: not self.is_watched(job, ranks[dead]))  # until that has been seen
            job.send_signal(signal.SIGINT)
            errors = job.communicate()[1]
            self.assertEqual(job.returncode, 5, errors)
            self.assertIn("rank 1 ended with exit code 3", errors)

    def test_ignored_signals_stay_ignored(self):
        done = subprocess.run(
            [LOCKSTEP, "run", "--", "sh", "-c", "kill -HUP $PPID; kill -HUP $$; sleep 0.1; echo goes on"],
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN), stdout=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "goes on\n"))

    def test_6_a_job_goes_on_without_the_shell(self):
        with tempfile.TemporaryDirectory(prefix="ls-") as folder:
            job, ranks = self.start(folder, "sleeps")
            launchers = children(job.pid)
            job.kill()
            job.wait()
            self.assertTrue(all(map(start_time, ranks)))
            for each in launchers:  # this job's
                os.kill(each, signal.SIGTERM)
            job.communicate()

    def test_usage(self):
        def errors(*arguments):
            done = subprocess.run([LOCKSTEP, "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            return done.returncode, done.stderr

        code, said = errors("--json", "x", "--", "torchrun", "train.py")
        self.assertEqual(code, 2)
        self.assertIn("--json is for session scripts", said)
        code, said = errors("--hang-timeout", "8", "torchrun", "--nproc_per_node=2", __file__)
        self.assertEqual(code, 2)
        self.assertIn("lockstep run -- torchrun", said)
        code, said = errors("--", "no-such-launcher", "train.py")
        self.assertEqual(code, 3)
        self.assertIn("no-such-launcher could not be started: No such file", said)
        code, said = errors("--findings", "x", "a.cpp")
        self.assertEqual(code, 2)
        self.assertEqual(errors("--hang-timeout", "soon", "--", "true")[0], 2)
        self.assertEqual(errors("--", "true")[0], 0)
        self.assertEqual(errors("--", "false")[0], 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
