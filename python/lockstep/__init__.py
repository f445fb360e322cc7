"""Lockstep in a Python job: are the replicas of a data-parallel training still the same, and if not, which rank, which
parameter, which step?

    import lockstep

    lockstep.verify(model)                                  # on every rank; True without a fault
    watching = lockstep.watch(model, optimizer, every=10)   # while training runs
    print(lockstep.grads(model))

The functions are those of C++ sessions (docs/inspectors.md), and all that they compare, measure and say is done by the
same library. Importing the package starts no thread, replaces no function and changes no signal handler; the library is
loaded by the first call. docs/python.md begins with five minutes from a torchrun script to the first verdict.
"""

from __future__ import annotations

# torch is imported first: its entry point (lockstep_autoload) imports modules of this package, which must be complete.
import torch  # noqa: F401

from lockstep.core import _library

_library.check_torch()
__version__ = _library.version()

from lockstep.core import _backend  # noqa: E402

_backend.register()

from lockstep.core.errors import Aborted, ArgumentError, LockstepError, PeerLeft  # noqa: E402
from lockstep.core.report import FaultFound, Finding, FindingOp, FindingTensor, Report  # noqa: E402
from lockstep.inspectors._inspectors import (  # noqa: E402
    attach,
    data,
    detach,
    first_difference,
    grads,
    memory,
    nan_trace,
    ranks,
    time_sync,
    timeline,
    verify,
)
from lockstep.prompt._breakpoints import breakpoint  # noqa: E402
from lockstep.record import _replay  # noqa: E402
from lockstep.watches._watches import (  # noqa: E402
    Watch,
    nan_watch,
    record_operators,
    step,
    watch,
    watch_grads,
    watch_memory,
)

for _public in (Aborted, ArgumentError, FaultFound, LockstepError, PeerLeft):
    _public.__module__ = __name__  # the name that tracebacks and pickles use

_replay.start()


def load_ipython_extension(shell: object) -> None:
    """%load_ext lockstep"""
    from lockstep.ipython import _extension

    _extension.load(shell)


def unload_ipython_extension(shell: object) -> None:
    from lockstep.ipython import _extension

    _extension.unload(shell)


__all__ = [
    "Aborted",
    "ArgumentError",
    "FaultFound",
    "Finding",
    "FindingOp",
    "FindingTensor",
    "LockstepError",
    "PeerLeft",
    "Report",
    "Watch",
    "__version__",
    "attach",
    "breakpoint",
    "data",
    "detach",
    "first_difference",
    "grads",
    "memory",
    "nan_trace",
    "nan_watch",
    "ranks",
    "record_operators",
    "step",
    "time_sync",
    "timeline",
    "verify",
    "watch",
    "watch_grads",
    "watch_memory",
]
