"""Starts the ranks of a session. The shell runs this module in the interpreter of the user's environment: it imports
torch once, and the ranks are copies of it, also those that are started again. It stays their parent, and waits for none
of them: the shell reads from the kernel how a rank has ended, and a zombie keeps its number meanwhile."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

import torch

from lockstep.core import _library
from lockstep.session import _names, _preempt, _rank

_PR_SET_PDEATHSIG = 1
_LONGEST_ORDER = 1 << 20


def main() -> NoReturn:
    """Starts the ranks by the plan of the session, which comes as JSON on the standard input. The plan of a rank that
    is started again comes from a socket, with its descriptors."""
    plan: dict[str, Any] = json.load(sys.stdin)
    report, orders = plan["report"], socket.socket(fileno=plan["orders"])
    _preempt.outlive_slurm_signals()
    _library.map_library()
    _names.seed_afresh()  # imports what it needs, which the ranks then need not
    obstacle = _obstacle_to_copies()
    gc.freeze()  # the end of a rank does not go through torch's objects again, which takes half a second
    gc.enable()  # the shell has switched it off for the imports
    _start_ranks(plan, report, orders, obstacle)
    count = len(_descriptors_of(plan["ranks"][0]))
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, _LONGEST_ORDER, count)
        if not order:
            os._exit(0)  # the shell has ended
        plan = json.loads(order)
        (rank,) = plan["ranks"]
        try:  # the ranks that live end with this process
            if len(descriptors) < count:
                raise OSError("it has no descriptors left (ulimit -n)")
            rank["tail"], *rank["output"] = descriptors
            _start_ranks(plan, report, orders, obstacle)
        except OSError as error:
            sys.stderr.write(f"the rank can't be started: {error}\n")
            for each in descriptors:
                os.close(each)
            os.write(report, b"%d 0\n" % rank["rank"])


def _start_ranks(plan: dict[str, Any], report: int, orders: socket.socket, obstacle: str) -> None:
    starter = os.getpid()
    for rank in plan["ranks"]:
        pid = os.fork()
        if pid == 0:
            try:
                orders.close()
                others = [each for one in plan["ranks"] if one is not rank for each in _descriptors_of(one)]
                for each in (report, *others):
                    os.close(each)
                _become({**plan["common"], **rank}, starter, obstacle)
            finally:  # the copy does not go on as its parent does
                traceback.print_exc()
                os._exit(1)
        os.write(report, b"%d %d\n" % (rank["rank"], pid))
    for rank in plan["ranks"]:
        for each in _descriptors_of(rank):
            os.close(each)


def _descriptors_of(rank: dict[str, Any]) -> list[int]:
    return [rank["tail"], *rank["output"]]


def _obstacle_to_copies() -> str:
    """Why the ranks can't be copies of this process: a copy has one thread, and no context of CUDA."""
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        return f"importing torch has started {threads - 1} threads"
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return "CUDA is in use since torch was imported" if in_use else ""


def _become(settings: dict[str, Any], starter: int, obstacle: str) -> NoReturn:
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:  # it has ended before the line above
        os._exit(1)
    for descriptor in (1, 2):
        os.dup2(settings["tail"], descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if obstacle:
        for each in settings["output"]:
            os.set_inheritable(each, True)
        os.environ[_rank.SETTINGS] = json.dumps(settings)  # not in the arguments, which everybody can read
        code = f"import sys; sys.path[:] = {sys.path!r}; from lockstep.session import _rank; _rank.run_as_told()"
        os.execv(sys.executable, [sys.executable, "-c", code])
    _rank.run(settings)
