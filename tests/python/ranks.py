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
