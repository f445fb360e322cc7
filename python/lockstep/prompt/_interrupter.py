"""Interrupts cells by an exception in the thread that runs them."""

from __future__ import annotations

import ctypes
import signal
import threading
from types import FrameType
from typing import Any


class Interrupter:
    """Raises KeyboardInterrupt on the thread that has entered it, while it is armed: on the main thread by SIGINT,
    which ends waits as well and whose handler is replaced meanwhile; on other threads at their next bytecode."""

    def __init__(self, lock: Any) -> None:
        """`lock` is held by the caller of interrupt(), and while this thread writes what must not be cut short."""
        self.lock = lock
        self._previous: Any = None
        self._replaced = False
        self._expected = False
        self._armed = False  # whether a cell runs: an interrupt is swallowed otherwise

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.getsignal(signal.SIGINT)
            if self._previous is not None:  # None: installed by C code, and can't be put back
                signal.signal(signal.SIGINT, self._handle)
                self._replaced = True

    def __exit__(self, *_: object) -> None:
        if self._replaced:
            if signal.getsignal(signal.SIGINT) == self._handle:  # and not one that a cell has installed
                signal.signal(signal.SIGINT, self._previous)
            self._replaced = False

    def arm(self) -> None:
        self._armed = True

    def interrupt(self) -> None:
        """Interrupts the cell. Called on any thread, under the lock."""
        if not self._armed:
            return
        if self._replaced:
            if self._expected and signal.getsignal(signal.SIGINT) == self._handle:
                return  # a signal is on its way: the handler would take a second one for the program's
            self._expected = True
            signal.pthread_kill(self._thread, signal.SIGINT)
        else:
            thread, error = ctypes.c_ulong(self._thread), ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, error)

    def disarm(self) -> None:
        """Ends the interrupts. One that is on its way is taken, and lost."""
        while self._armed:
            try:
                with self.lock:
                    self._armed = False
            except KeyboardInterrupt:  # before that
                continue
        try:
            self._settle()
        except KeyboardInterrupt:  # of another thread than the main one, which was under way
            self._settle()

    def _settle(self) -> None:
        if not self._replaced:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), None)
        elif self._expected and signal.getsignal(signal.SIGINT) == self._handle:  # else the cell's handler gets it
            # The signal was sent to this thread, so it is delivered when this call leaves the kernel; then Python runs
            # the handler. One that a cell has blocked comes later, and is for nobody then, too.
            signal.pthread_sigmask(signal.SIG_BLOCK, ())
            if signal.SIGINT in signal.sigpending():
                return
        self._expected = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._expected:
            self._expected = False
            if self._armed:
                raise KeyboardInterrupt
            return
        # It is not from the prompt, and does what the program would do.
        if callable(self._previous):
            self._previous(number, frame)
        elif self._previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
