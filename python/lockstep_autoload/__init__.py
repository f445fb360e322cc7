"""What `import torch` calls in every process (the entry point group "torch.backends"): in a rank of a job that
`lockstep run -- …` watches, it starts the agent through which that asks what the rank is doing; in torchrun it has the
failures reported. In a run that `lockstep compare` has started, it starts the recorder. Elsewhere it does nothing.

A package of its own, without imports: `import torch` fails if an entry point raises, also while it is loaded.
"""

import os
import sys
from typing import Any

__all__ = ["start"]

_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")
_LAUNCHERS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.", "deepspeed.launcher.")


def _is_launcher() -> bool:
    """By its command line, since the variables of a Slurm step or of another launcher make it look like a rank."""
    words = iter(sys.orig_argv[1:])
    for word in words:  # Python's own options, up to the program
        if not word.startswith("-") or word.startswith("-c"):
            break
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            next(words, None)
        elif not word.startswith("--") and "m" in word and not word.startswith(("-X", "-W")):  # -m MODULE, -um MODULE
            return (word.partition("m")[2] or next(words, "")).startswith(_LAUNCHER_MODULES)
    return os.path.basename(sys.argv[0]) in _LAUNCHERS


def _is_rank() -> bool:
    # Launchers import torch, too, and so do the workers of data loaders that are spawned.
    if not any(each in os.environ for each in _RANK_VARIABLES) or "--multiprocessing-fork" in sys.argv:
        return False
    return not _is_launcher()


def _complain(problem: object) -> None:
    try:
        print(f"lockstep: this rank is not watched: {problem}", file=sys.stderr)
    except Exception:
        pass  # without a standard error there is nobody to say it to


def _find_package() -> None:
    """The command names the package that lies beside it; one that is installed comes first."""
    import importlib.util

    beside = os.environ.get("LOCKSTEP_PACKAGE")
    if beside and importlib.util.find_spec("lockstep") is None:
        sys.path.append(beside)


def _watch(rank: int | None = None, world_size: int | None = None) -> None:
    """Starts the agent. `rank`: where the program says it, and not its launcher. Never raises."""
    try:
        _find_package()
        from lockstep.agent import _agent

        problem = _agent.start(only_with_launcher=True, rank=rank, world_size=world_size)
        if not problem:
            from lockstep.core import _backend

            _backend.hook_groups()
        # A program that a rank starts has the rank's variables, and is none.
        if problem and not problem.startswith("another process"):
            _complain(problem)
    except Exception as error:
        _complain(error)


def _watch_from_init_process_group() -> None:
    """In a process that no launcher has given a rank: it has one when it makes its process group. So it is in jobs that
    start their ranks themselves (torch.multiprocessing.spawn, Lightning, Ray Train)."""
    import functools
    import inspect

    import torch.distributed as dist

    if not dist.is_available():
        return
    from torch.distributed import distributed_c10d

    module: Any = distributed_c10d
    original = module.init_process_group
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> None:
        given: dict[str, Any] = {}
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            pass  # which the call below raises
        rank, world_size = given.get("rank", -1), given.get("world_size", -1)
        is_known = isinstance(rank, int) and isinstance(world_size, int) and 0 <= rank < world_size
        if is_known:
            _watch(rank, world_size)
        elif _is_rank():
            _watch()
        original(*args, **kwargs)
        if not is_known:
            _watch()  # with what the group says

    module.init_process_group = dist.init_process_group = init_process_group


def _job_folder() -> str:
    """The folder that LOCKSTEP_JOB names. Where that is on another machine, the one of its name that the ranks have made
    here."""
    named = os.environ["LOCKSTEP_JOB"]
    if os.path.isdir(named):
        return named
    import glob

    name = os.path.basename(named)
    runtime = os.path.join(os.environ.get("XDG_RUNTIME_DIR", "/nowhere"), "lockstep", name)
    made = [runtime, *glob.glob(f"/tmp/lockstep-{os.getuid()}-*/{name}")]
    return next(each for each in made if os.path.isdir(each) and os.stat(each).st_uid == os.getuid())


def _report_failures() -> None:
    """In torchrun: of the ranks that failed first it alone knows how they ended, once it has asked for that. Its report
    is left in the job's folder (protocol/job.h)."""
    import json

    from torch.distributed.elastic.multiprocessing import errors

    original = errors.ChildFailedError.__init__

    def __init__(self: Any, name: str, failures: dict[Any, Any]) -> None:
        original(self, name, failures)
        try:
            report = [{"rank": int(rank), "pid": each.pid, "exitcode": each.exitcode, "time": each.timestamp}
                      for rank, each in failures.items()]
            path = os.path.join(_job_folder(), "launcher.json")
            with open(f"{path}.new", "w") as file:
                json.dump(report, file)
            os.replace(f"{path}.new", path)
        except Exception:
            pass  # its own report on standard error says the same

    errors.ChildFailedError.__init__ = __init__  # type: ignore[method-assign]


def _record(folder: str) -> None:
    """Ends the process where it can't be recorded: its launcher ends the other ranks, and the command shows why."""
    try:
        _find_package()
        from lockstep.compare import _recorder

        _recorder.start(folder)
    except Exception as error:
        print(f"lockstep compare: this process can't be recorded: {type(error).__name__}: {error}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)


def start() -> None:
    """Never raises."""
    if os.environ.get("LOCKSTEP_REPLAY"):
        return _find_package()
    folder = os.environ.get("LOCKSTEP_COMPARE")
    if folder and not _is_launcher():
        _record(folder)
    if not os.environ.get("LOCKSTEP_JOB"):
        return
    try:
        if _is_launcher():
            _report_failures()
        elif _is_rank():
            _watch()
        else:
            _watch_from_init_process_group()
    except Exception as error:
        _complain(error)
