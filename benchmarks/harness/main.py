"""The plan of a run of tools/bench, and the table at its end."""
import argparse
import json
import os
import platform
import sys
from pathlib import Path

from . import goals
from .lockstep import Lockstep
from .processes import output_of
from .records import Results, parse

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = {"nbdistributed": (2, 4), "jupyter_distributed": (2, 4), "ipyparallel": (2, 4, 8), "torchrun": (2, 4)}


def peer(name, ranks, cells, venv):
    """Start and latency in one: a peer's session is started once for both."""
    python = Path(venv) / "bin" / "python"
    return parse(output_of([python, ROOT / "benchmarks/peers" / f"drive_{name}.py", "--ranks", ranks, "--cells", cells], 300) or "")


def kernel(lockstep, ranks, cells, venv):
    """The Jupyter kernel through jupyter_client, with ipykernel in turn."""
    command = [Path(venv) / "bin" / "python", ROOT / "benchmarks/peers/drive_kernel.py", "--lockstep", lockstep.program,
               "--ranks", ranks, "--cells", cells]
    return parse(output_of(command, 600, lockstep.environment()) or "")


def plan(lockstep, what, cells, venv):
    """What one round measures: (title, function that returns records)."""
    for ranks in (2, 4):
        if "start" in what:
            yield f"lockstep start, {ranks} ranks", lambda ranks=ranks: lockstep.start(ranks)
    for ranks in (2, 4, 8):
        if "trivial" in what:
            yield f"lockstep trivial cells, {ranks} ranks", lambda ranks=ranks: lockstep.bench("trivial", ranks, cells)
        if venv and what & {"start", "trivial", "magic"}:
            for name, sizes in PEERS.items():
                if ranks in sizes:
                    yield f"{name}, {ranks} ranks", lambda name=name, ranks=ranks: peer(name, ranks, cells, venv)
    if "magic" in what:
        yield "lockstep magics, 8 ranks", lambda: lockstep.bench("magic", 8, cells)
    if "torch" in what:
        yield "lockstep torch cells", lambda: lockstep.bench("torch", 2, 10)
    if "debug" in what:
        yield "lockstep torch cells with %%debug", lambda: lockstep.bench("torch", 2, 5, options=["--debug-cells"])
    if "memory" in what:
        yield "lockstep memory", lambda: lockstep.memory(2)
    if "many" in what:
        yield "lockstep 1,000 cells", lambda: lockstep.bench("many", 2, 1000, limit_s=600)
    if "output" in what:
        yield "lockstep 100 MB of output", lambda: lockstep.bench("output", 2, 1)
    for ranks in (2, 4) if venv and "kernel" in what else ():
        yield f"lockstep kernel, {ranks} ranks", lambda ranks=ranks: kernel(lockstep, ranks, cells, venv)
    if "poll" in what:
        yield "lockstep empty loops", lambda: lockstep.bench("poll", 2, 1)
    if "workshop" in what:
        yield "20 sessions at once", lambda: lockstep.workshop(20, 2)
    for ranks, hosts in ((2, 2), (64, 4), (256, 16), (1024, 64)) if "scale" in what else ():
        yield f"lockstep {ranks} stub ranks", lambda ranks=ranks, hosts=hosts: lockstep.scale(ranks, hosts)


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return {"cores": os.cpu_count(), "processor": model, "system": platform.platform()}


def print_table(results):
    print("\n| path | goal | measured (median) | |\n|---|---|---|---|")
    for row in goals.rows(results):
        print("| " + " | ".join(row) + " |")
    shown = {("lockstep", goal.what, goal.ranks) for goal in goals.GOALS}
    print("\n| other figures | ranks | median | lowest to highest | values |\n|---|---|---|---|---|")
    for subject, what, ranks in results.kinds():
        if (subject, what, ranks) not in shown:
            values, unit = results.values(subject, what, ranks), results.unit(subject, what)
            print(f"| {subject} {what} | {ranks} | {results.median(subject, what, ranks):.3g} {unit} | "
                  f"{min(values):.3g} to {max(values):.3g} | {len(values)} |")


def main(help_text):
    usual = ["start", "trivial", "magic", "torch", "debug", "memory", "many", "output", "kernel", "poll"]
    everything = [*usual, "workshop", "scale"]
    parser = argparse.ArgumentParser(description=help_text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="WHAT")
    parser.add_argument("--build", default=ROOT / "build" / "release", help="build folder (build/release)")
    parser.add_argument("--peers", metavar="VENV", help="Python environment that has the peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cells", type=int, default=30, help="cells of each kind in a round")
    parser.add_argument("--json", metavar="FILE", help="writes all figures, one record a line")
    arguments = parser.parse_args()
    unknown = set(arguments.what) - set(everything)
    if unknown:
        parser.error(f"there is no measurement {', '.join(sorted(unknown))}; there are {', '.join(everything)}")
    if not (Path(arguments.build) / "bin" / "lockstep-bench-session").exists():
        parser.error(f"{arguments.build} has no benchmark programs: build it first (tools/quickstart does), or say --build DIR")

    lockstep, results, failures = Lockstep(arguments.build), Results(), 0
    try:
        for round_number in range(1, arguments.rounds + 1):
            for title, measure in plan(lockstep, set(arguments.what or usual), arguments.cells, arguments.peers):
                print(f"round {round_number}: {title}", file=sys.stderr, flush=True)
                try:
                    records = measure()
                except (RuntimeError, OSError) as problem:
                    print(f"  {problem}", file=sys.stderr)
                    records = []
                failures += not records
                results.add([dict(record, round=round_number) for record in records])
    finally:
        lockstep.close()
        if arguments.json:
            with open(arguments.json, "w") as file:
                for record in [{"machine": machine()}] + results.records:
                    file.write(json.dumps(record) + "\n")
    print_table(results)
    return 1 if failures else 0
