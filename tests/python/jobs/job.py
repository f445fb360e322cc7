"""What the jobs of these tests share: cases by name, and a file with the results of each rank.

A job runs as `torchrun … JOB.py FOLDER [CASE…]`. Each rank writes FOLDER/rank-R.json, {case: [findings]}.
"""

import json
import pathlib
import sys
import traceback

import torch
import torch.distributed as dist

CASES = {}


def case(function):
    """A function of the rank and the number of ranks that returns reports, or findings."""
    CASES[function.__name__] = function
    return function


def findings_of(result):
    if result is None:
        return []
    if isinstance(result, (list, tuple)):
        return [each for one in result for each in findings_of(one)]
    return [each.json for each in result.findings] if hasattr(result, "findings") else [result.json]


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    folder = pathlib.Path(sys.argv[1])
    results = {}
    for name in sys.argv[2:] or list(CASES):
        torch.set_default_dtype(torch.float32)
        try:
            results[name] = findings_of(CASES[name](rank, size))
        except Exception:
            results[name] = {"error": traceback.format_exc()}
        dist.barrier()
    (folder / f"rank-{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()
