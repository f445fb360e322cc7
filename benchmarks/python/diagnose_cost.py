"""`lockstep diagnose` of a job's Flight Recorder dumps, beside Python's pickle, which reads the files and says nothing:

    python benchmarks/python/diagnose_cost.py LOCKSTEP [--ranks 1024] [--records 100] [--rounds 5]

One rank has not called the last all_reduce. Each record has two frames of Python."""

import argparse
import os
import pathlib
import pickle
import statistics
import subprocess
import tempfile
import time

MS = 1_000_000  # nanoseconds


def record(number: int, done: bool) -> dict:
    frames = [{"name": "step", "filename": "train.py", "line": 42},
              {"name": "main", "filename": "train.py", "line": 99}]
    return {"frames": frames, "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"),
            "collective_seq_id": number + 1, "p2p_seq_id": 0, "op_id": number + 1, "profiling_name": "nccl:all_reduce",
            "time_created_ns": number * MS, "input_sizes": [[1024, 1024]], "input_dtypes": ["Float"],
            "output_sizes": [[1024, 1024]], "output_dtypes": ["Float"], "state": "completed" if done else "scheduled",
            "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": done,
            "timeout_ms": 600_000, "is_p2p": False}


def write_dumps(folder: pathlib.Path, ranks: int, records: int) -> None:
    group = {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}
    for rank in range(ranks):
        last = records - (rank == ranks // 2)
        entries = [record(number, number < records - 1) for number in range(last)]
        status = {"last_enqueued_collective": last, "last_started_collective": records - 1,
                  "last_completed_collective": records - 1}
        dump = {"version": "2.10", "nccl_version": "2.28", "pg_config": {"0": group}, "pg_status": {"0": status},
                "entries": entries}
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump))


def diagnose(program: str, folder: pathlib.Path) -> tuple[float, float, float]:
    """Seconds, seconds of processor time, and MB of memory at most."""
    start = time.monotonic()
    with subprocess.Popen([program, "diagnose", str(folder)], stdout=subprocess.PIPE, text=True) as process:
        text = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - start
    assert process.returncode == 1 and "has not called" in text, text
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def load(folder: pathlib.Path) -> float:
    start = time.monotonic()
    for file in folder.iterdir():
        pickle.loads(file.read_bytes())
    return time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_dumps(folder, options.ranks, options.records)
        rounds = [(*diagnose(options.lockstep, folder), load(folder)) for _ in range(options.rounds)]
    seconds, processor, memory, peer = (statistics.median(each) for each in zip(*rounds))
    print(f"{options.ranks} dumps of {options.records} records: {seconds:.2f} s ({processor:.2f} s of processor time), "
          f"{memory:.0f} MB; {seconds / peer:.2f} x pickle.loads of the files ({peer:.2f} s)")


if __name__ == "__main__":
    main()
