"""What a rank does when the session is asked to end while there is time to save something."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Callable

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_save: Callable[[], object] | None = None


def on_preempt(save: Callable[[], object] | None) -> None:
    """Keeps `save` for a session that is asked to end: by SIGTERM, as Slurm sends it before it preempts or ends a job, or
    by the signal of its option --signal. Each rank that has registered a function calls it then, after its cell, which is
    interrupted. A later call replaces the function, and None takes it away."""
    global _save
    if save is not None and not callable(save):
        raise TypeError(f"on_preempt() takes a function without arguments, and got a {type(save).__name__}")
    _save = save


def is_registered() -> bool:
    return _save is not None


def run() -> None:
    if _save is not None:
        _save()


def outlive_slurm_signals() -> None:
    """Ignores the signals that Slurm sends to all processes of a step at once: the shell ends those of a session in
    order. As protocol/slurm_signals.h: within a job of Slurm, and without an effect on copies of this process."""
    if not os.environ.get("SLURM_JOB_ID"):
        return
    owner = os.getpid()

    def pass_over(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for each in _SIGNALS:
        signal.signal(each, pass_over)
