"""Runs a job of jobs/, and reads what its ranks have written; what tests know of this system."""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import copies

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
LOCKSTEP = str(pathlib.Path(os.environ["LOCKSTEP_BUILD"]) / "bin" / "lockstep")
sys.path.insert(0, str(TREE / "tests" / "support"))

TORCH = importlib.metadata.version("torch")
# c10d's hooks log the collectives of jobs under `lockstep run`.
HAS_HOOKS = tuple(int(each) for each in TORCH.split(".")[:2]) >= (2, 14)


# Of a program in Python that is to leave a core file.
SMALL_CORE = """import resource
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (1 << 20 if hard < 0 else min(hard, 1 << 20), hard))"""


def leaves_core():
    """Whether the system writes a core file, or gives it to a program."""
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen([sys.executable, "-c", f"{SMALL_CORE}\nimport os\nos.abort()"], cwd=folder,
                                 stderr=subprocess.DEVNULL)
        _, status = os.waitpid(child.pid, 0)
        child.returncode = status
    return os.WCOREDUMP(status)


def line_in(path, text):
    """The number of the first line of a file that has `text`."""
    return next(number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def environment(**more):
    """That of the tests, with one thread for each rank, as torchrun would set it."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **more}


def launcher(ranks, torchrun=False, copied=False):
    """torchrun (True, or its options), or what starts the ranks as it does, in less time. `copied`: in still less time, for a
    job that is nobody's child (copies.py)."""
    if torchrun:
        options = [] if torchrun is True else torchrun
        return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", *options]
    return [copies.interpreter() if copied else sys.executable, str(HERE / "launch.py"), str(ranks)]


def run_job(name, ranks, *arguments, torchrun=False, **more):
    """Returns, by rank, what each rank has written; raises AssertionError with the output of a job that fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*launcher(ranks, torchrun, copied=True), str(HERE / "jobs" / name), folder, *arguments]
        done = subprocess.run(command, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, cwd=HERE / "jobs")
        files = [pathlib.Path(folder) / f"rank-{rank}.json" for rank in range(ranks)]
        assert done.returncode == 0 and all(file.exists() for file in files), done.stdout[-8000:]
        return [json.loads(file.read_text()) for file in files], done.stdout


class WatchedJob:
    """What a job came to under `lockstep run`: its exit code, what it wrote, what its ranks wrote into files rank-N, and the
    findings, of which the first cause is the last fault. `command`: the job in a folder."""

    def __init__(self, command, *options, **more):
        with tempfile.TemporaryDirectory(prefix="ls-") as folder:
            findings, runtime = pathlib.Path(folder, "findings.jsonl"), pathlib.Path(folder, "run")
            runtime.mkdir(mode=0o700)
            done = subprocess.run([LOCKSTEP, "run", *options, "--findings", findings, "--", *command(folder)], cwd=HERE / "jobs",
                                  env=environment(XDG_RUNTIME_DIR=str(runtime), **more), text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
            self.code, self.output = done.returncode, done.stdout
            self.errors = "".join(line for line in done.stderr.splitlines(keepends=True)
                                  if "no rank has appeared within" not in line)  # on a busy machine
            self.findings = [json.loads(line) for line in findings.read_text().splitlines()]
            self.results = [each.read_text() for each in sorted(pathlib.Path(folder).glob("rank-*"))]
            self.left = [str(each) for each in (runtime / "lockstep").glob("*")]
        self.faults = [each for each in self.findings if each["severity"] == "fault"]
