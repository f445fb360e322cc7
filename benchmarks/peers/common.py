"""What the drivers of peers share: their options, timing, their records (harness/records.py), ending what they started."""
import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time


def options(text):
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cells", type=int, default=30)
    return parser.parse_args()


def report(subject, what, ranks, unit, values):
    print(json.dumps({"subject": subject, "what": what, "ranks": ranks, "unit": unit, "values": [round(v, 4) for v in values]}), flush=True)


def milliseconds(function, *arguments, **options):
    begin = time.perf_counter()
    function(*arguments, **options)
    return (time.perf_counter() - begin) * 1e3


def own_ipython_folder():
    """IPython's files of this run; call it before IPython is imported. The folder goes with the returned object."""
    folder = tempfile.TemporaryDirectory(prefix="bench-ipython-")
    os.environ["IPYTHONDIR"] = folder.name
    return folder


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def leave(folder):
    """Ends this program at once: threads and sockets of the peer may otherwise keep it alive."""
    sys.stdout.flush()
    folder.cleanup()
    os._exit(0)
