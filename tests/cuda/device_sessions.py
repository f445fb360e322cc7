#!/usr/bin/env python3
"""device_sessions.py LOCKSTEP: sessions on the GPUs of this machine; exit code 77, which ctest takes for skipped, where
there is none."""
import os
import pathlib
import subprocess
import sys

lockstep = sys.argv[1]
script = str(pathlib.Path(__file__).with_name("device_session.cpp"))
try:
    gpus = len(os.listdir("/proc/driver/nvidia/gpus"))
except OSError:
    gpus = 0
if gpus == 0:
    print("no GPU")
    sys.exit(77)


def run(*options, code=0):
    result = subprocess.run([lockstep, "run", script, *options], capture_output=True, text=True, timeout=600)
    print(result.stdout, result.stderr, sep="")
    assert result.returncode == code, f"{options}: exit code {result.returncode}"
    return result.stdout + result.stderr


def expect(text, part):
    assert part in text, f"{part!r} is not in the output"


expect(run(), f"rank 0 of {gpus} on cuda:0, GPU 0, cpu:gloo,cuda:nccl")
expect(run("--gpu-ids", "0", "--backend", "gloo"), "rank 0 of 1 on cuda:0, GPU 0, gloo")
shared = run("-n", "2", "--share-gpu", "--gpu-ids", "0")
expect(shared, "rank 1 of 2 on cuda:0, GPU 0, gloo")
expect(run("-n", str(gpus + 1), code=2), "--share-gpu")
