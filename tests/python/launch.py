"""Starts the ranks of a job on this machine with torchrun's variables: launch.py N SCRIPT ARGUMENT… It does not import
torch, so a test that does not look at torchrun itself starts in a fraction of the time. After a failure it ends the
other ranks; with LAUNCH_GOES_ON=1 it waits for them, as srun does without --kill-on-bad-exit."""

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


def main():
    number = int(sys.argv[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(number),
              "LOCAL_WORLD_SIZE": str(number)}
    asked = []
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: asked.append(number))
    ranks = [subprocess.Popen([sys.executable, *sys.argv[2:]], env={**common, "RANK": str(i), "LOCAL_RANK": str(i)},
                              start_new_session=True)
             for i in range(number)]
    while not asked and any(each.returncode is None for each in ranks):
        time.sleep(0.1)  # as often as torchrun looks
        ends = [each.poll() for each in ranks]
        if any(ends) and "LAUNCH_GOES_ON" not in os.environ:
            break
    for each in ranks:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGTERM)  # with the workers of its data loader, as torchrun does
    for each in ranks:
        each.wait()
    sys.exit(1 if any(each.returncode for each in ranks) else 0)


if __name__ == "__main__":
    main()
