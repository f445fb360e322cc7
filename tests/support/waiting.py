"""Waiting for what other processes do."""
import os
import select
import time

LIMIT_S = 240  # ends what hangs; judges nothing


def wait_until(is_so, says=lambda: "", limit_s=LIMIT_S):
    """Asks again and again: for what is no event to a test, such as files, screens, and the state of processes. Returns the
    answer. `says`: what the failure says besides."""
    deadline = time.monotonic() + limit_s
    while not (answer := is_so()):
        if time.monotonic() > deadline:
            raise AssertionError(f"it has not come to pass in {limit_s} s {says()}")
        time.sleep(0.01)
    return answer


class Event:
    """An event: another process opens a FIFO for writing and writes there."""

    def __init__(self, path):
        self.path = path
        os.mkfifo(path)
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def wait(self):
        """Waits until it was said, and takes the FIFO away."""
        said, _, _ = select.select([self.descriptor], [], [], LIMIT_S)
        os.close(self.descriptor)
        os.unlink(self.path)
        return bool(said)
