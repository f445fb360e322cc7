"""Programs that a benchmark starts: each in a process group of its own, with a time limit, ended with all it left in that group."""
import contextlib
import os
import signal
import subprocess
import sys


@contextlib.contextmanager
def started(command, env=None, **options):
    process = subprocess.Popen([str(part) for part in command], env=env, start_new_session=True, **options)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the group bears the number of the process that we started
        process.wait()


def output_of(command, limit_s, env=None):
    """What it wrote to its standard output; None, and a word on stderr, where it failed or took longer than limit_s."""
    with started(command, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, errors = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            print(f"  took longer than {limit_s} s: {' '.join(map(str, command))}", file=sys.stderr)
            return None
        if process.returncode != 0:
            print(f"  failed ({process.returncode}): {' '.join(map(str, command))}\n{errors.strip()[-1500:]}", file=sys.stderr)
            return None
        return out
