"""Starts the ranks of a job on this machine with torchrun's variables: launch.py N SCRIPT ARGUMENT…, where SCRIPT is
of Python, or a program. It does not import torch, so a test that does not look at torchrun itself starts in a fraction
of the time. After a failure it ends the other ranks; with LAUNCH_GOES_ON=1 it waits for them, as srun does without
--kill-on-bad-exit."""

import os
import signal
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def code_of(rank):
    """Its exit code or signal, None while it runs. It stays a zombie."""
    end = os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None if end is None else end.si_status


def main():
    number = int(sys.argv[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(number),
              "LOCAL_WORLD_SIZE": str(number)}
    asked = []
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: asked.append(number))
    python = [sys.executable] if sys.argv[2].endswith(".py") else []
    ranks = [subprocess.Popen([*python, *sys.argv[2:]], env={**common, "RANK": str(i), "LOCAL_RANK": str(i)},
                              start_new_session=True)
             for i in range(number)]
    goes_on = "LAUNCH_GOES_ON" in os.environ
    while not asked:
        time.sleep(0.1)  # as torchrun
        codes = [code_of(each) for each in ranks]
        if None not in codes or (any(codes) and not goes_on):
            break
    # Nobody knows what a rank died of once its parent has waited for it, and a busy machine needs a while to tell the
    # shell that it has died.
    if not asked:
        time.sleep(2 if any(codes) else 0)
    for each in ranks:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGTERM)  # with the workers of its data loader, as torchrun does
    for each in ranks:
        each.wait()
    sys.exit(1 if any(each.returncode for each in ranks) else 0)


if __name__ == "__main__":
    main()
