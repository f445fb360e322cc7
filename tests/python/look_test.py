"""`lockstep look`: jobs that nobody watches (jobs/look.py), looked at while they hang or run."""

import ctypes
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from ranks import HERE, LOCKSTEP, environment, launcher, line_in

JOB = HERE / "jobs" / "look.py"
line_of = functools.partial(line_in, JOB)
PY_SPY = pathlib.Path(sys.executable).parent / "py-spy"
PATIENCE = 300  # seconds until a job that does not come to its hang fails the test


def place(text):
    return f"jobs/look.py:{line_of(text)} in "


class Job:
    """A job in a session of its own, which is ended with all its processes. `pids`: of its ranks, in any order."""

    def __init__(self, case, *arguments, ranks=8, torchrun=False, python=sys.executable, stdin=None, **more):
        self.launcher = subprocess.Popen(
            [python, *launcher(ranks, torchrun)[1:], str(JOB), case, *arguments], cwd=HERE / "jobs", stdin=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
            env=environment(TORCH_DEVICE_BACKEND_AUTOLOAD="0", LAUNCH_GOES_ON="1", **more))
        self.pids = [int(self.line("READY")) for _ in range(ranks)]

    def line(self, word):
        """What stands behind `word` in the next line that has it."""
        for line in self.launcher.stdout:
            if word in line:
                return line.split(word)[1].strip()
        raise AssertionError(f"the job has ended without a line {word}")

    def close_input(self):
        self.launcher.stdin.close()
        self.launcher.stdin = None  # communicate() would write to it

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.launcher.send_signal(signal.SIGTERM)
        for each in self.pids:
            try:
                os.kill(each, signal.SIGCONT)  # of a rank that is stopped
            except ProcessLookupError:
                pass
        self.launcher.communicate()


class Seen:
    def __init__(self, *arguments, prefix=(), **more):
        done = subprocess.run([*prefix, LOCKSTEP, "look", *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=environment(PATH="/usr/bin:/bin"), **more)
        self.code, self.text, self.errors = done.returncode, done.stdout, done.stderr
        self.lines = self.text.splitlines()
        self.events = [json.loads(line) for line in self.lines] if "--json" in arguments else []

    def of(self, event):
        return [each for each in self.events if each["event"] == event]


def look_until_it_hangs(job, *arguments):
    """The look that sees the ranks in their waits: they get there some time after they have said that they are ready."""
    end = time.monotonic() + PATIENCE
    while True:
        seen = Seen(job.launcher.pid, *arguments)
        if seen.code != 0 or time.monotonic() > end:
            return seen


@unittest.skipUnless(PY_SPY.exists(), "py-spy is not in the environment of the tests: tools/python sets it up")
class Hangs(unittest.TestCase):
    def look(self, case, kind, ranks, *words, hang_timeout=1, **more):
        with Job(case, **more) as job:
            seen = look_until_it_hangs(job, "--hang-timeout", hang_timeout)
            self.assertEqual(seen.code, 1, seen.text + seen.errors)
            self.assertLessEqual(len(seen.lines), 40, seen.text)
            for each in words:
                self.assertIn(each, seen.text)
            told = Seen(job.launcher.pid, "--hang-timeout", hang_timeout, "--json")
        (fault,) = [each for each in told.of("finding") if each["severity"] == "fault"]
        self.assertEqual((fault["inspector"], fault["verdict"], fault["kind"], fault["ranks"]),
                         ("hang", "hang", kind, ranks), fault)
        self.assertEqual(told.of("end"), [{"event": "end", "exit_code": 1}])
        return fault, told, seen

    def waits_for_the_odd_one(self, case, kind, does, line, **more):
        fault, told, seen = self.look(case, kind, [5], place("# of a step"), place(line), **more)
        self.assertEqual(fault["reference_ranks"], [0, 1, 2, 3, 4, 6, 7])
        self.assertIn("ranks 0-4,6-7 wait in all_reduce (", fault["message"])
        self.assertIn(f"rank 5 {does} (", fault["message"])
        return told, seen

    def test_a_lock(self):
        told, seen = self.waits_for_the_odd_one("lock", "lock", "waits for a lock", "# nobody lets go", torchrun=True)
        self.assertIn("of torchrun: 8 of 8 ranks here", seen.text)
        self.assertIn("py-spy 0.", seen.lines[0])
        self.assertRegex(seen.text, r"rank 5: waits for a lock\n.*lock \(.*look.py:\d+\)\n.*native: PyThread_acquire_lock")
        (stack,) = [each for each in told.of("stack") if each["rank"] == 5 and each["main"]]
        self.assertEqual(stack["python"][0]["function"], "lock")
        self.assertIn("PyThread_acquire_lock_timed", [each["function"] for each in stack["native"]])
        (odd,) = [each for each in told.of("rank") if each["rank"] == 5]
        self.assertEqual((odd["state"], odd["moved"], odd["call"]), ("S", False, None))

    def test_a_collective_that_was_skipped(self):
        fault, _, _ = self.look("skipped", "other_collective", [5], place("# of a step"), place("# behind the step"))
        self.assertIn("ranks 0-4,6-7 wait in all_reduce (", fault["message"])
        self.assertIn("rank 5 waits in barrier (", fault["message"])

    def test_a_data_loader(self):
        self.waits_for_the_odd_one("loader", "loading_data", "waits for its data loader", "# no batch")

    def test_the_flight_recorder_of_a_server_of_torch(self):
        self.has_numbers("served")

    def test_the_flight_recorder_by_its_trigger(self):
        self.has_numbers("piped")

    def has_numbers(self, case):
        with tempfile.TemporaryDirectory(prefix="ls-") as folder, Job(case, folder) as job:
            seen = look_until_it_hangs(job, "--hang-timeout", 1, "--timeout", 60, "--json")
        (fault,) = [each for each in seen.of("finding") if each["severity"] == "fault"]
        self.assertEqual((fault["kind"], fault["ranks"]), ("lock", [5]), fault)
        self.assertIn("all_reduce #4 of default_pg float32 [4, 3] (", fault["message"])
        self.assertIn(place("# of a step"), fault["message"])
        self.assertIn(f"rank 5 waits for a lock ({JOB}:{line_of('# nobody lets go')} in lock)", fault["message"])
        self.assertIn("by the Flight Recorder", fault["message"])

    def test_ranks_that_wait_without_a_pause(self):
        with tempfile.TemporaryDirectory(prefix="ls-") as folder, Job("spinning", folder, ranks=2) as job:
            seen = look_until_it_hangs(job, "--hang-timeout", 1, "--json")
        (fault,) = [each for each in seen.of("finding") if each["severity"] == "fault"]
        self.assertEqual((fault["kind"], fault["ranks"], fault["reference_ranks"]), ("lock", [1], [0]), fault)
        self.assertRegex(fault["message"], "rank 0 has waited for [0-9.]+ s at least")
        self.assertEqual([(each["rank"], each["moved"]) for each in seen.of("rank")], [(0, True), (1, False)])

    def test_an_endless_loop(self):
        fault, told, _ = self.look("loop", "computing", [5], place("# of a step"), "/jobs/look.py:")
        self.assertRegex(fault["message"], r"rank 5 computes at (the same line|another line of the same function) .*\(.*in loop\)")
        (odd,) = [each for each in told.of("rank") if each["rank"] == 5]
        self.assertTrue(odd["moved"])

    def test_a_rank_that_is_gone(self):
        fault, _, _ = self.look("gone", "died", [5], place("# without rank 5"), "rank 5 ended with exit code 3",
                              hang_timeout=3600)  # proven whatever the time
        self.assertIn("ranks 0-4,6-7 wait in new_group (", fault["message"])

    def test_a_rank_that_is_stopped(self):
        # Proven whatever the time.
        fault, _, _ = self.look("stopped", "stopped", [5], place("# of a step"), hang_timeout=3600)
        self.assertIn("rank 5 is stopped", fault["message"])


@unittest.skipUnless(PY_SPY.exists(), "py-spy is not in the environment of the tests: tools/python sets it up")
class Looks(unittest.TestCase):
    def test_a_healthy_job_has_no_fault(self):
        with Job("healthy", ranks=4) as job:
            for _ in range(3):
                seen = Seen(job.pids[0], "--json")
                self.assertEqual(seen.code, 0, seen.text)
                self.assertEqual([each for each in seen.of("finding") if each["severity"] == "fault"], [])
                self.assertIn("no hang is proven by this", seen.of("finding")[-1]["message"])
                self.assertNotIn("✓", seen.text)

    def test_a_wait_that_is_shorter_than_the_limit_is_no_fault(self):
        with Job("lock", ranks=8) as job:
            look_until_it_hangs(job, "--hang-timeout", 1)
            seen = Seen(job.launcher.pid, "--hang-timeout", 3600)
        self.assertEqual(seen.code, 0)
        self.assertIn("• hang: ranks 0-4,6-7 wait in all_reduce", seen.text)
        self.assertIn("no hang is proven by this: a wait of less than 3600 s may end", seen.text)

    def test_9_looks_change_no_bit(self):
        def parameters(looks):
            with Job("bits", "2000", ranks=2, stdin=subprocess.PIPE) as job:
                for _ in range(looks):
                    job.line("STEP")
                    self.assertIn(Seen(job.launcher.pid).code, (0, 1))
                job.close_input()
                return sorted(job.line("PARAMETERS") for _ in range(2))

        self.assertEqual(parameters(0), parameters(3))

    def test_ranks_that_nothing_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            spawn = pathlib.Path(folder) / "spawn.py"
            spawn.write_text(SPAWN)
            job = subprocess.Popen([sys.executable, spawn, folder], stdout=subprocess.PIPE, text=True, start_new_session=True,
                                   env=environment(TORCH_DEVICE_BACKEND_AUTOLOAD="0"))
            try:
                pids = sorted(int(job.stdout.readline()) for _ in range(2))
                seen = Seen(job.pid, "--json")
                self.assertEqual(sorted(seen.of("job")[0]["pids"].values()), pids, seen.errors)
                self.assertIn("they are numbered in the order of their start", Seen(job.pid).text.replace("\n", " "))
            finally:
                os.killpg(job.pid, signal.SIGTERM)
                job.communicate()

    def test_several_jobs(self):
        with Job("healthy", ranks=2) as first, Job("healthy", ranks=2) as second:
            seen = Seen()
            self.assertEqual(seen.code, 2, seen.text)
            self.assertIn("several jobs run; choose one: lockstep look --job ID", seen.errors)
            ids = re.findall(r"(127\.0\.0\.1:\d+) +2 of 2 ranks", seen.errors)
            for each in (first, second):
                by_pid = Seen(each.pids[1], "--json").of("job")[0]
                self.assertIn(by_pid["job"], ids)
                self.assertEqual(sorted(by_pid["pids"].values()), sorted(each.pids))
                by_id = Seen("--job", by_pid["job"], "--json").of("job")[0]
                self.assertEqual(by_id["pids"], by_pid["pids"])
            seen = Seen("--job", "x")
            self.assertEqual(seen.code, 2)
            self.assertIn("there is no job x", seen.errors)

    def test_without_py_spy(self):
        # The interpreter that the environment is made of, which has no py-spy beside it.
        packages = subprocess.run([sys.executable, "-c", "import torch; print(torch.__path__[0])"], text=True,
                                  stdout=subprocess.PIPE, check=True).stdout.strip()
        python = os.path.realpath(sys.executable)
        with Job("lock", python=python, PYTHONPATH=str(pathlib.Path(packages).parent)) as job:
            seen = look_until_it_hangs(job, "--hang-timeout", 1)
            self.assertIn("pip install py-spy", seen.text)
            self.assertIn("ranks 0-4,6-7 wait in a collective; rank 5 waits for a lock", seen.text)
            self.assertEqual(seen.code, 1, seen.text)
            named = Seen(job.launcher.pid, "--hang-timeout", 1, "--py-spy", PY_SPY)
            self.assertIn(place("# nobody lets go"), named.text)
            wrong = Seen(job.launcher.pid, "--py-spy", "/no/such/program")
            self.assertEqual(wrong.code, 2)
            self.assertIn("--py-spy /no/such/program: no such program", wrong.errors)

    def test_where_no_process_may_be_traced(self):
        with Job("lock") as job:
            look_until_it_hangs(job, "--hang-timeout", 1)
            # Ranks that wait are read where they stand, without ptrace(2).
            seen = Seen(job.launcher.pid, "--hang-timeout", 1, preexec_fn=refuse_ptrace)
            self.assertEqual(seen.code, 1, seen.text + seen.errors)
            self.assertIn(f"rank 5 waits for a lock ({JOB}:{line_of('# nobody lets go')} in lock)", seen.text)
            unprivileged = ["setpriv", "--bounding-set=-sys_ptrace"]
            refused = Seen(job.launcher.pid, prefix=unprivileged)
            # Root needs the capability on most kernels, and not on all.
            hidden = os.geteuid() == 0 and subprocess.run(
                [*unprivileged, "cat", f"/proc/{job.pids[0]}/environ"], stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL).returncode != 0
        if hidden:
            self.assertEqual(refused.code, 2, refused.text)
            self.assertIn("no rank was found, and the kernel refuses to show", refused.errors)
            self.assertIn("--cap-add=SYS_PTRACE", refused.errors)


SPAWN = """
import os, sys, torch, torch.distributed as dist, torch.multiprocessing

def rank(number, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=2)
    dist.barrier()
    sys.stdout.write(f"{os.getpid()}\\n")
    sys.stdout.flush()
    if number == 0:
        dist.barrier()
    while True:
        pass

if __name__ == "__main__":
    torch.multiprocessing.start_processes(rank, (sys.argv[1],), nprocs=2, start_method="fork")
"""


def refuse_ptrace():
    """Refuses ptrace and process_vm_readv to this process and its children, as containers do."""
    number, refuse, allow, load, jump = 0, 0x00050001, 0x7FFF0000, 0x20, 0x15

    class Filter(ctypes.Structure):
        _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(Filter))]

    steps = (Filter * 5)(Filter(load, 0, 0, number), Filter(jump, 2, 0, 101), Filter(jump, 1, 0, 310),
                         Filter(0x06, 0, 0, allow), Filter(0x06, 0, 0, refuse))
    program = Program(len(steps), steps)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no filter of system calls")


MPI_RANK = """
import os, sys, threading, torch, torch.distributed as dist

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=rank, world_size=2)
dist.barrier()
sys.stdout.write(f"READY {os.getpid()}\\n")
sys.stdout.flush()
if rank == 1:
    threading.Event().wait()
dist.all_reduce(torch.ones(2))
"""


class Launchers(unittest.TestCase):
    """Ranks that other launchers than torchrun number."""

    def ranks_of(self, variables):
        """What is seen of two processes that have such variables; `{}` in them is the number of a rank."""
        ranks = [subprocess.Popen(["env", "-u", "RANK", "-u", "WORLD_SIZE", "sleep", "600"],
                                  env=environment(**{name: value.format(rank) for name, value in variables.items()}))
                 for rank in range(2)]
        try:
            seen = Seen(*(each.pid for each in ranks), "--json")
            (job,) = seen.of("job")
            self.assertEqual(job["pids"], {str(rank): each.pid for rank, each in enumerate(ranks)}, seen.errors)
            self.assertEqual(job["world_size"], 4)
            return job
        finally:
            for each in ranks:
                each.kill()
                each.wait()

    def test_slurm(self):
        job = self.ranks_of({"SLURM_PROCID": "{}", "SLURM_LOCALID": "{}", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "17",
                             "SLURM_STEP_ID": "2", "SLURM_STEP_NUM_NODES": "1"})
        self.assertEqual((job["launcher"], job["job"], job["elsewhere"]), ("Slurm", "17.2", []))
        job = self.ranks_of({"SLURM_PROCID": "{}", "SLURM_LOCALID": "{}", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "17",
                             "SLURM_STEP_NUM_NODES": "2"})
        self.assertEqual((job["job"], job["elsewhere"]), ("17.0", [2, 3]))

    def test_open_mpi_by_its_variables(self):
        job = self.ranks_of({"OMPI_COMM_WORLD_RANK": "{}", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "{}",
                             "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "prterun-here-3@1"})
        self.assertEqual((job["launcher"], job["job"], job["elsewhere"]), ("Open MPI", "prterun-here-3@1", [2, 3]))

    @unittest.skipUnless(shutil.which("mpirun"), "mpirun is not there: apt-get install openmpi-bin")
    def test_mpirun(self):
        with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as folder:
            pathlib.Path(folder, "rank.py").write_text(MPI_RANK)
            job = subprocess.Popen(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable,
                                    f"{folder}/rank.py", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   env=environment(TMPDIR=folder, TORCH_DEVICE_BACKEND_AUTOLOAD="0"))
            try:
                pids = sorted(int(job.stdout.readline().split()[1]) for _ in range(2))
                end = time.monotonic() + PATIENCE
                while (seen := Seen(job.pid, "--hang-timeout", 1)).code == 0 and time.monotonic() < end:
                    pass
                self.assertEqual(seen.code, 1, seen.text + seen.errors)
                self.assertIn("of Open MPI: 2 of 2 ranks here", seen.text)
                told = re.sub(r"\([^()]*:\d+\)", "(…)", " ".join(seen.text.split()))
                self.assertIn("rank 0 waits in all_reduce (…); rank 1 waits for a lock (…)", told)
                self.assertEqual(sorted(Seen(job.pid, "--json").of("job")[0]["pids"].values()), pids)
            finally:
                job.terminate()
                job.communicate()


class Processes(unittest.TestCase):
    def test_no_job(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = subprocess.Popen(["sleep", "600"], cwd=folder)
            try:
                seen = Seen(alone.pid)
                self.assertEqual((seen.code, seen.text), (2, ""))
                self.assertIn(f"process {alone.pid} is neither a rank nor the launcher of ranks", seen.errors)
            finally:
                alone.kill()
                alone.wait()
        seen = Seen(alone.pid)
        self.assertEqual(seen.code, 2)
        self.assertIn(f"there is no process {alone.pid}", seen.errors)

    @unittest.skipUnless(os.geteuid() == 0, "only root can start a process of another user")
    def test_a_job_of_another_user(self):
        other = subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "RANK=0",
                                  "WORLD_SIZE=1", "MASTER_PORT=65099", "sleep", "600"])
        try:
            self.assertNotIn(":65099 ", Seen().errors)  # of all jobs here
            seen = Seen(other.pid, "--json")  # root may
            self.assertEqual(seen.of("job")[0]["pids"], {"0": other.pid}, seen.errors)
            own = subprocess.Popen(["env", "RANK=0", "WORLD_SIZE=1", "sleep", "600"])
            try:
                as_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
                if subprocess.run([*as_other, "test", "-x", LOCKSTEP]).returncode != 0:
                    self.skipTest("another user can't run the program of this build")
                seen = Seen(own.pid, prefix=as_other)
                self.assertEqual(seen.code, 2)
                self.assertIn(f"process {own.pid} is of root: its user and root can look at it", seen.errors)
            finally:
                own.kill()
                own.wait()
        finally:
            other.kill()
            other.wait()


if __name__ == "__main__":
    unittest.main()
