"""Processes by pid and start time, so that a number that the kernel uses again is no orphan."""
import os
import pathlib
import select
import time


def start_time(pid):
    """Of a process that runs (zombies do not); None where there is none."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2:].split()
    return None if fields[0] == "Z" else int(fields[19])


def descendants(pid):
    """{(pid, start time): command} of all processes below `pid`."""
    below, found = [pid], {}
    while below:
        parent = below.pop()
        for task in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                children = [int(word) for word in task.read_text().split()]
            except OSError:
                continue
            for child in children:
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
