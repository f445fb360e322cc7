#!/usr/bin/env python3
"""Runs examples/train as its README says: alone, on ranks that the environment names, under mpirun and torchrun where there are such,
and with an environment that makes no sense. Usage: run_example.py TRAIN DIGITS.csv"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

TRAIN, DIGITS = (os.path.abspath(path) for path in sys.argv[1:3])
LIMIT = 600
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def start(command, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in NAMES and not name.startswith("OMPI_")}
    return subprocess.Popen([*command, TRAIN, DIGITS, "2"], env={**clean, **environment}, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def finish(*processes):
    """Output of the first, errors of all; they must end well."""
    said = [process.communicate(timeout=LIMIT) for process in processes]
    for process, (_, errors) in zip(processes, said):
        assert process.returncode == 0, f"exit code {process.returncode}: {errors}"
    return said[0][0]


def losses(output):
    found = [float(loss) for loss in re.findall(r"^epoch \d: loss ([\d.]+)$", output, re.MULTILINE)]
    assert len(found) == 2 and found[1] < found[0], f"two falling losses were expected: {output}"
    return found


def expect_same(name, mine, alone):
    assert all(abs(a - b) < 2e-3 for a, b in zip(mine, alone)), f"{name}: {mine}, alone {alone}"
    print(f"{name}: {mine}")


def expect_named(words, **environment):
    process = start([], **environment)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 1 and all(word in errors for word in words), f"{words} in: {errors} ({process.returncode})"
    print(f"{environment}: {errors.strip()}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def main():
    alone = losses(finish(start([])))
    print(f"alone: {alone}")

    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    expect_same("two ranks", losses(finish(*[start([], RANK=str(rank), **meeting) for rank in range(2)])), alone)

    if shutil.which("mpirun"):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        expect_same("mpirun", losses(finish(start(["mpirun", *root, "--oversubscribe", "-n", "2"]))), alone)
    else:
        print("no mpirun here")

    python = os.environ.get("LOCKSTEP_PYTHON_WITH_TORCH")
    if python:
        torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--no-python", "--nproc_per_node=2"]
        expect_same("torchrun", losses(finish(start(torchrun))), alone)
    else:
        print("no torchrun: name a Python that has torch in LOCKSTEP_PYTHON_WITH_TORCH")

    expect_named(["RANK", "banana"], RANK="banana", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    expect_named(["WORLD_SIZE"], RANK="0")
    expect_named(["RANK", "2"], RANK="2", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    expect_named(["MASTER_ADDR"], RANK="0", WORLD_SIZE="2")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)  # the program saves into the folder that it runs in
    main()
