#!/usr/bin/env python3
"""Measures lockstep::ddp beside PyTorch's DistributedDataParallel: the two take turns, round by round, each rank pinned to a core.

    benchmarks/ddp/compare.py --program build/release/bin/lockstep-bench-ddp --python VENV/bin/python [--ranks 1,2,4]
                              [--models many,mlp,conv,transformer] [--rounds 3] [--steps 40] [--out results.jsonl]
                              [--device cuda:0] [--backends shared_memory,gloo]

Without --python only Lockstep is measured. Every round's JSON lines go to --out, and stderr says which round runs. The rows of a model
come when its rounds are over. They have medians over rounds, and the ratio is the median of the rounds' own ratios, because what
disturbs a round disturbs both sides of it.
--backends names those that Lockstep is measured with, each in its turn; the first is what is beside Python's Gloo in the table.
With --device the model is on that GPU, and NCCL reduces the gradients; it takes each rank for a host of its own.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run(command, ranks, extra):
    environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
    with tempfile.TemporaryDirectory() as folder:
        processes = [subprocess.Popen([*command, "--rank", str(rank), "--ranks", str(ranks), "--init",
                                       f"file://{folder}/store", "--pin", *extra],
                                      stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL, text=True,
                                      env={**environment, "NCCL_HOSTID": str(rank)})
                     for rank in range(ranks)]
        try:
            out, _ = processes[0].communicate(timeout=600)
            for process in processes:
                process.wait(timeout=60)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
    if not out.strip():
        sys.exit(f"{command[-1]} printed nothing; exit codes {[process.returncode for process in processes]}")
    return json.loads(out.strip().splitlines()[-1])


def print_rows(model, ranks, rounds):
    median = statistics.median
    for variant in rounds["lockstep"][0]["variants"]:
        mine = [r["variants"][variant] for r in rounds["lockstep"]]
        parts = " / ".join(f"{median(m[k] for m in mine):.2f}" for k in ("forward_ms", "backward_ms", "optimizer_ms"))
        theirs = [r["variants"][variant]["ms"] for r in rounds.get("python", []) if variant in r["variants"]]
        ratios = [m["ms"] / t for m, t in zip(mine, theirs)]
        print(f"| {model} | {ranks} | {variant} | {median(m['ms'] for m in mine):.2f} | {parts} | "
              f"{f'{median(theirs):.2f}' if theirs else '–'} | "
              f"{f'{median(ratios):.2f} (' + ', '.join(f'{x:.2f}' for x in ratios) + ')' if ratios else '–'} |")
    for side in (side for side in rounds if side.startswith("lockstep over ")):
        for variant in rounds[side][0]["variants"]:
            theirs = [r["variants"][variant]["ms"] for r in rounds[side]]
            ratios = [r["variants"][variant]["ms"] / t for r, t in zip(rounds["lockstep"], theirs)]
            print(f"| {model} | {ranks} | {variant}, of {side} | | | {median(theirs):.2f} | {median(ratios):.2f} |")
        for size in rounds[side][0].get("all_reduce_ms", {}):
            mine, theirs = ([r["all_reduce_ms"][size] for r in rounds[each]] for each in ("lockstep", side))
            print(f"| all_reduce of {size} KB | {ranks} | of {side} | {median(mine):.3f} | | {median(theirs):.3f} | "
                  f"{median(m / t for m, t in zip(mine, theirs)):.2f} |")
    if "ddp" in rounds["lockstep"][0]["variants"] and "local" in rounds["lockstep"][0]["variants"]:
        for side, results in rounds.items():
            exposed = median(r["variants"]["ddp"]["backward_ms"] - r["variants"]["local"]["backward_ms"] for r in results)
            alone = median(r["reduction_alone_ms"] for r in results)
            print(f"| {model} | {ranks} | {side}: exposed / alone | {exposed:.2f} / {alone:.2f} ms | | | {exposed / alone:.2f} |")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--python")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--models", default="many,mlp,conv,transformer")
    parser.add_argument("--variants", default="local,ddp,view")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backends", default="")
    parser.add_argument("--all-reduce-kb", default="")
    parser.add_argument("--out")
    a = parser.parse_args()
    first, *others = a.backends.split(",")
    backend = lambda name: ["--backend", name] if name else []
    sides = {"lockstep": [a.program, *backend(first)],
             **{f"lockstep over {other}": [a.program, *backend(other)] for other in others}}
    if a.python:
        sides["python"] = [a.python, os.path.join(HERE, "python_step_time.py")]
    print("| model | ranks | variant | lockstep ms | forward / backward / optimizer | python ms | ratio (rounds) |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for model in a.models.split(","):
        for ranks in map(int, a.ranks.split(",")):
            rounds = {side: [] for side in sides}
            for number in range(a.rounds):
                for side, command in sides.items():
                    print(f"{model}, {ranks} ranks, round {number + 1} of {a.rounds}: {side}", file=sys.stderr, flush=True)
                    variants = [v for v in a.variants.split(",") if side != "python" or v not in ("reducer", "noop")]
                    extra = ["--model", model, "--steps", str(a.steps), "--variants", ",".join(variants), "--device", a.device]
                    if a.batch:
                        extra += ["--batch", str(a.batch)]
                    if a.all_reduce_kb and side != "python":
                        extra += ["--all-reduce-kb", a.all_reduce_kb]
                    result = run(command, ranks, extra)
                    rounds[side].append(result)
                    if a.out:
                        with open(a.out, "a") as out:
                            out.write(json.dumps(result) + "\n")
            print_rows(model, ranks, rounds)


if __name__ == "__main__":
    main()
