"""The agent of this process: through it a shell of the same user asks what the rank is doing (python/agent/agent.h)."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import signal
import sys
import threading
import traceback
from typing import Any

import torch

from lockstep.core import _exceptions, _group, _library

_tried_for: int | None = None
_problem = ""
_lent_for: int | None = None
_said_for: int | None = None


def start(*, only_with_launcher: bool = False, rank: int | None = None, world_size: int | None = None) -> str:
    """Starts the agent, once in a process. `rank`: where the program has said it and has no group yet. Returns why
    there is none (a full disk, a child of a rank), or an empty string; the program goes on without one. Raises only if
    the library can't be loaded."""
    global _tried_for, _problem
    if _tried_for == os.getpid():
        if not _problem:
            _lend_faulthandler()  # the first call may have been on another thread
        return _problem
    _tried_for, _problem = os.getpid(), ""
    _library.load()
    try:
        _problem = _start(only_with_launcher, rank, world_size)
    except Exception as error:  # no descriptor or memory is left, say: no reason for an inspector to fail
        _problem = f"{type(error).__name__}: {error}"
    return _problem


def _start(only_with_launcher: bool, rank: int | None, world_size: int | None) -> str:
    in_group = _group.is_there()  # the library knows the variables of launchers
    arguments: dict[str, Any] = {
        "rank": _group.rank() if in_group else rank,
        "world_size": _group.world_size() if in_group else world_size,
        "torch": str(torch.__version__),
        "python": ".".join(str(each) for each in sys.version_info[:3]),
        "script": os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "",
        "only_with_launcher": only_with_launcher,
    }
    answer = _library.call("agent_start", **arguments)
    if "folder" not in answer:
        return str(answer["problem"])
    # The folder of a `lockstep run` on another machine is not here, and neither is a file in it.
    named = os.environ.get("LOCKSTEP_JOB")
    if named and os.path.dirname(os.environ.get("LOCKSTEP_FINDINGS", "")) == named:
        os.environ["LOCKSTEP_FINDINGS"] = os.path.join(answer["folder"], "findings")
    atexit.register(_say_end, os.getpid())
    if multiprocessing.parent_process() is not None:  # a child that was forked ends without Python's own functions
        multiprocessing.util.Finalize(None, _say_end, args=(os.getpid(),), exitpriority=-1)
    _lend_faulthandler()
    return ""


def _lend_faulthandler() -> None:
    """Gives the library the function of faulthandler that writes the Python stack of the thread that a signal
    interrupts. Not those of all threads: the frames of a thread that runs change while they are read, which can end the
    process. The signal has the handler that it had before as soon as this returns."""
    import faulthandler  # not by `import lockstep`

    global _lent_for
    if _lent_for == os.getpid() or threading.current_thread() is not threading.main_thread():
        return
    _lent_for = os.getpid()
    file = os.memfd_create("lockstep-stacks")
    _library.call("agent_begin_borrowing")
    faulthandler.register(signal.SIGURG, file=file, all_threads=False, chain=False)
    _library.call("agent_end_borrowing", file=file)


def _say_end(process: int) -> None:
    """Reports to a shell that watches how the program ends. Python keeps an exception that nothing has caught; in a
    child that multiprocessing has started, it is still being raised."""
    global _said_for
    if os.getpid() != process or _said_for == process:
        return
    _said_for = process
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None) or sys.exc_info()[1]
    if isinstance(error, SystemExit):  # torch.multiprocessing.spawn raises it when it has written down the exception
        error = error.__context__ if error.code else None
    if error is None:
        _library.call("agent_end", end={"how": "finished"})
        return
    frames = [
        {"function": each.name, "file": each.filename, "line": each.lineno or 0}
        for each in reversed(traceback.extract_tb(error.__traceback__, limit=-64))
    ]
    end = {"how": "threw", "type": _exceptions.name_of(error), "message": _exceptions.message_of(error)[:4096]}
    _library.call("agent_end", end={**end, "frames": frames})


_library.after_loading.append(start)
