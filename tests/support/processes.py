"""Processes by pid and start time, so that a number that the kernel uses again is no orphan."""
import contextlib
import os
import pathlib
import select
import time


def stat_of(pid):
    """The fields of its line in /proc from the state on; none where there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def start_time(pid):
    """Of a process that runs (zombies do not); None where there is none."""
    fields = stat_of(pid)
    return int(fields[19]) if fields and fields[0] != "Z" else None


def parent(pid):
    return int(stat_of(pid)[1])


def children(pid):
    """Those of all its threads."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def descendants(pid):
    """{(pid, start time): command} of all processes below `pid`."""
    below, found = [pid], {}
    while below:
        for child in children(below.pop()):
            born = start_time(child)
            if born is None:
                continue
            try:
                command = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            found[(child, born)] = b" ".join(command).decode().strip()
            below.append(child)
    return found


def wait_gone(processes, limit=120):
    """Those that still run after a while."""
    deadline = time.monotonic() + limit
    left = {}
    for (pid, born), name in processes.items():
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            is_it = start_time(pid) == born  # after the descriptor is open: the number may be another process's now
            if is_it and not select.select([process], [], [], max(0, deadline - time.monotonic()))[0]:
                left[(pid, born)] = name
        finally:
            os.close(process)
    return left


def with_variable(variable):
    """{(pid, start time): command} of all processes that were started with `variable` (NAME=VALUE) in their environment."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0") and (born := start_time(folder.name)) is not None:
                found[(int(folder.name), born)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except (OSError, ValueError):
            continue  # it has ended, or is somebody else's
    return found
