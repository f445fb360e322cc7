"""Starts the ranks of a session. The shell runs this module in the interpreter of the user's environment: it imports
torch once, and the ranks are copies of it. It stays their parent, and waits for none of them: the shell reads from the
kernel how a rank has ended, and a zombie keeps its number meanwhile."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
from typing import Any, NoReturn

import torch

from lockstep.core import _library
from lockstep.session import _names, _preempt, _rank

_PR_SET_PDEATHSIG = 1


def main() -> NoReturn:
    """The plan of the session comes as JSON on the standard input."""
    plan: dict[str, Any] = json.load(sys.stdin)
    _preempt.outlive_slurm_signals()
    _library.map_library()
    _names.seed_afresh()  # imports what it needs, which the ranks then need not
    obstacle = _obstacle_to_copies()
    gc.freeze()  # the end of a rank does not go through torch's objects again, which takes half a second
    gc.enable()  # the shell has switched it off for the imports
    starter = os.getpid()
    for rank in range(len(plan["ranks"])):
        pid = os.fork()
        if pid == 0:
            _become(rank, plan, starter, obstacle)
        with open(plan["report"], "wb", buffering=0, closefd=False) as report:
            report.write(b"%d %d\n" % (plan["ranks"][rank]["rank"], pid))
    os.close(plan["report"])
    while True:
        signal.pause()


def _obstacle_to_copies() -> str:
    """Why the ranks can't be copies of this process: a copy has one thread, and no context of CUDA."""
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        return f"importing torch has started {threads - 1} threads"
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return "CUDA is in use since torch was imported" if in_use else ""


def _become(rank: int, plan: dict[str, Any], starter: int, obstacle: str) -> NoReturn:
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:  # it has ended before the line above
        os._exit(1)
    tail = plan["ranks"][rank]["tail"]
    for descriptor in (1, 2):
        os.dup2(tail, descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    keep = {tail, *plan["ranks"][rank]["output"]}
    for each in (plan["report"], *(one["tail"] for one in plan["ranks"]),
                 *(descriptor for one in plan["ranks"] for descriptor in one["output"])):
        if each not in keep:
            os.close(each)
    settings = {"rank": rank, **plan["common"], **plan["ranks"][rank]}
    if obstacle:
        for each in settings["output"]:
            os.set_inheritable(each, True)
        os.environ[_rank.SETTINGS] = json.dumps(settings)  # not in the arguments, which everybody can read
        code = f"import sys; sys.path[:] = {sys.path!r}; from lockstep.session import _rank; _rank.run_as_told()"
        os.execv(sys.executable, [sys.executable, "-c", code])
    _rank.run(settings)
