#!/usr/bin/env python3
"""Measures a cell `k + 1` in Python on all ranks of a job that has stopped at lockstep.breakpoint(), from the line that
is sent to `lockstep attach` to the values on its output; and `1+1` by ipyparallel's %px and nbdistributed beside it, in
turns, round by round.

    PYTHON benchmarks/python/prompt_cost.py --peers VENV [--lockstep PROGRAM] [--ranks 2,4] [--rounds 3] [--cells 20]
        [--json FILE]

PYTHON: one that has torch, and the package (installed, or by PYTHONPATH=build/release/python). VENV: an environment
with ipyparallel and nbdistributed (tools/bench says how to make one). Prints the ratios to the better of the two.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def own_cells(program, ranks, cells):
    """Milliseconds of each cell."""
    with tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as folder:  # a socket's path is short
        environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", XDG_RUNTIME_DIR=folder)
        job = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--standalone",
                                f"--nproc_per_node={ranks}", str(HERE / "prompt_job.py")],
                               env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(ranks):
            line = job.stdout.readline()
            said = re.search(r"waits in breakpoint.*`lockstep attach (\S+)`", line)
            if not said:
                raise RuntimeError("the job has not come to its breakpoint: " + line + job.stdout.read())
        shell = subprocess.Popen([program, "attach", said[1]], env=environment, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        times = []
        for turn in range(cells + 3):  # the first ones attach and warm up
            expected = f"{'0' if ranks == 1 else f'0-{ranks - 1}'} = {41 + turn}\n"
            begin = time.perf_counter()
            shell.stdin.write(f"k + {turn}\n")
            shell.stdin.flush()
            shown = []
            for line in shell.stdout:
                shown.append(line)
                if line == expected:
                    break
            else:
                raise RuntimeError(f"`lockstep attach` ended before it showed {expected!r}: {''.join(shown)}")
            times.append(1e3 * (time.perf_counter() - begin))
        shell.stdin.close()
        shell.stdout.read()
        if shell.wait() or job.wait():
            raise RuntimeError(f"the shell ended with {shell.returncode}, and the job with {job.wait()}")
        return times[3:]


def peer_cells(python, name, ranks, cells):
    done = subprocess.run([python, ROOT / "benchmarks" / "peers" / f"drive_{name}.py", "--ranks", str(ranks), "--cells",
                           str(cells)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    for line in done.stdout.splitlines():
        if line.startswith('{"') and (record := json.loads(line))["what"] == "cell.value":
            return record["values"]
    raise RuntimeError(f"drive_{name}.py: {done.stderr[-2000:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", required=True)
    parser.add_argument("--lockstep", default=str(ROOT / "build" / "release" / "bin" / "lockstep"))
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--json", help="a file for the records, one a line")
    arguments = parser.parse_args()
    python = pathlib.Path(arguments.peers) / "bin" / "python"
    records = []
    print("| what | ranks | goal | measured (median of all cells; the load was "
          f"{os.getloadavg()[0]:.1f} at the start) |\n|---|---|---|---|", flush=True)
    for ranks in [int(each) for each in arguments.ranks.split(",")]:
        values = {"lockstep": [], "ipyparallel": [], "nbdistributed": []}
        for _ in range(arguments.rounds):
            values["lockstep"] += own_cells(arguments.lockstep, ranks, arguments.cells)
            for name in ("ipyparallel", "nbdistributed"):
                values[name] += peer_cells(python, name, ranks, arguments.cells)
        middle = {name: statistics.median(each) for name, each in values.items()}
        better = min(("ipyparallel", "nbdistributed"), key=middle.get)
        print(f"| `k + 1` in Python at a breakpoint | {ranks} | ≤ 0.5 × the better | {middle['lockstep']:.1f} ms; "
              f"{middle['lockstep'] / middle[better]:.2f} × {better} (ipyparallel {middle['ipyparallel']:.1f} ms, "
              f"nbdistributed {middle['nbdistributed']:.1f} ms) |", flush=True)
        records += [{"subject": name, "what": "prompt.value", "ranks": ranks, "unit": "ms",
                     "values": [round(value, 4) for value in each]} for name, each in values.items()]
    if arguments.json:
        pathlib.Path(arguments.json).write_text("".join(json.dumps(each) + "\n" for each in records))


if __name__ == "__main__":
    main()
