"""What `lockstep compare` says of trainings with a fault and without one: of each layout and fault, whether the first value
that it names is the one that the fault changes first, and of each layout without a fault, whether it is called the same.

    python benchmarks/python/compare_faults.py LOCKSTEP [--seeds 5] [--only FAULT]…

The training is tests/python/jobs/compare_gpt.py, the faults are those of compare_faults.py there. The Python that runs this
has torch and lockstep. Prints a table in Markdown, and what was said where it was wrong; exits with 1 then."""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

JOB = pathlib.Path(__file__).resolve().parents[2] / "tests" / "python" / "jobs" / "compare_gpt.py"
RANKS = {"single": 1, "accumulate": 1, "checkpoint": 1, "tp+fsdp": 4}  # 2 of the others
HEALTHY = ("accumulate", "checkpoint", "ddp", "ddp+accumulate", "fsdp", "fsdp1", "fsdp1+names", "tp", "tp+fsdp", "by-hand")

# By fault: the layouts, and what the answer has to begin with. ALL: the ranks that differ, where there are several.
ALL = r"( on ranks? \S+|, over ranks 0-\d,)?"
FAULTS = {
    "seed": ("by-hand fsdp fsdp1 tp+fsdp", r"step 0: the initial value of (token|place).weight on rank"),
    "shifted": ("ddp ddp+accumulate fsdp by-hand tp tp+fsdp", r"step 0: the samples differ: \d of the \d samples of rank 1 are not in"),
    "same shard": ("ddp ddp+accumulate fsdp by-hand", r"step 0: the samples differ: 4 of the 8 samples .* ranks 0-1 are given the same"),
    "repeated": ("ddp fsdp by-hand", r"step 0: the samples differ: 1 of the 8 samples"),
    "dropped": ("accumulate ddp+accumulate", r"step 0: the samples differ: [24] of the 8 samples"),
    "mask": ("ddp ddp+accumulate fsdp fsdp1+names by-hand tp tp+fsdp", r"step 0: the output of blocks.0.attention on rank 1"),
    "scale": ("accumulate ddp fsdp tp tp+fsdp", rf"step 0: the output of blocks.0.attention{ALL} is"),
    "positions": ("ddp fsdp by-hand", r"step 0: the output of place on rank 1"),
    "epsilon": ("accumulate checkpoint fsdp tp", rf"step 0: the output of blocks.0.ln1{ALL} is"),
    "gelu": ("ddp by-hand", r"step 0: the output of blocks.0.down on rank 1"),
    "bias twice": ("ddp fsdp tp tp+fsdp", rf"step 0: the output of blocks.0.o{ALL} is"),
    "bfloat16": ("ddp by-hand", r"step 0: the output of blocks.0.q on rank 1"),
    "not divided": ("accumulate ddp+accumulate", rf"step 0: the loss{ALL} is not the reference's: it is [24] ×"),
    "unequal parts": ("accumulate ddp+accumulate", rf"step 0: the loss{ALL} is"),
    "unequal ranks": ("ddp by-hand", rf"step 0: the loss{ALL} is"),
    "recomputed": ("accumulate ddp by-hand", rf"step 0: the gradient of the output of blocks.1.\w+{ALL} is"),
    "frozen": ("ddp fsdp fsdp1+names", r"step 0: the gradient of blocks.0.q.weight is read by no optimizer"),
    "no sync": ("ddp ddp+accumulate", r"step 0: the gradient of token.weight on ranks 0-1 .* not averaged over"),
    "ignored": ("ddp", r"step 0: the gradient of head.weight on ranks 0-1 .* not averaged over"),
    "not reduced": ("by-hand", r"step 0: the gradient of head.weight on ranks 0-1 .* not averaged over"),
    "sum": ("by-hand", r"step 0: the gradient of token.weight.* it is 2 × .* the mean is meant"),
    "reduced twice": ("by-hand", r"step 0: the gradient of blocks.0.down.weight on ranks 0-1 .* it is 2 ×"),
    "norm not reduced": ("tp", r"step 0: the gradient of blocks.1.ln1.weight .* not reduced over ranks"),
    "last norm not reduced": ("tp", r"step 0: the gradient of ln.bias .* not reduced over ranks"),
    "norm reduced twice": ("tp", r"step 0: the gradient of blocks.0.ln2.weight .* it is 2 × .* each of them had all"),
    "no gradient": ("ddp by-hand", r"step 0: the gradient of head.bias is None on rank 1"),
    "clipped": ("ddp by-hand", r"step 0: the gradient of token.weight on rank 0 is"),
    "stale": ("accumulate ddp fsdp tp", rf"step 1: the gradient of head.bias{ALL} is"),
    "rate": ("accumulate ddp fsdp fsdp1 tp", rf"step 0: the value after the step of token.weight{ALL} is .* learning rate"),
    "rate of rank 1": ("ddp fsdp by-hand", r"step 0: the value after the step of token.weight on rank 1"),
    "decay": ("fsdp fsdp1+names tp+fsdp", rf"step 0: the value after the step of token.weight{ALL} is"),
    "betas": ("ddp tp", rf"step 1: the value after the step of token.weight{ALL} is"),
    "not gathered": ("by-hand ddp", r"step 0: the value after the step of head.bias on rank 1"),
    "no step": ("ddp by-hand", r"lockstep: the candidate\n.*rank 0 has made the 2 steps .* rank 1 has not: does an optimizer skip"),
    "drift": ("ddp by-hand", r"step 1: the output of ln on rank 1"),
}

# By several faults of one run: the layouts, and what the faults are, of which each has to be found by --all-faults.
COMBINED = {
    "mask+clipped+rate": ("ddp by-hand", [r"output of blocks.0.attention on rank 1", r"gradient of token.weight on rank 0", r"learning rate"]),
    "bias twice+decay": ("fsdp tp", [rf"output of blocks.0.o{ALL}", r"learning rate"]),
    "mask+decay": ("fsdp1+names tp+fsdp", [r"output of blocks.0.attention on rank 1", r"learning rate"]),
    "epsilon+rate": ("checkpoint accumulate fsdp", [rf"output of blocks.0.ln1{ALL} is", rf"output of blocks.1.ln1{ALL} is", r"learning rate"]),
    "positions+sum": ("by-hand", [r"output of place on rank 1", r"the mean is meant"]),
    "not divided+mask": ("ddp+accumulate", [r"the loss.* 2 ×", r"output of blocks.0.attention on rank 1"]),
    "norm not reduced+norm reduced twice": ("tp", [r"gradient of blocks.1.ln1.weight .* not reduced over", r"gradient of blocks.0.ln2.weight .* 2 ×"]),
    "scale+betas": ("ddp tp", [rf"output of blocks.0.attention{ALL}", r"step 1: the value after the step of token.weight"]),
}


def command(layout, fault, seed):
    ranks = RANKS.get(layout, 2)
    start = [sys.executable] if ranks == 1 else [sys.executable, "-m", "torch.distributed.run", "--standalone",
                                                 f"--nproc_per_node={ranks}"]
    return f"SEED={seed} {shlex.join([*start, str(JOB), layout, *([fault] if fault else [])])}"


class Trainings:
    def __init__(self, lockstep, folder):
        self.lockstep, self.folder = lockstep, folder

    def compare(self, *arguments):
        done = subprocess.run([self.lockstep, "compare", "--json", "--steps", "2", *arguments], capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    def record_reference(self, seed):
        _, said = self.compare("--reference", command("single", "", seed), "--keep", f"{self.folder}/{seed}")
        assert os.path.exists(f"{self.folder}/{seed}"), said

    def answer(self, layout, fault, seed):
        """Whether it is called the same training, the first fault, and the largest difference of values that are right."""
        events, said = self.compare(f"{self.folder}/{seed}", "--candidate", command(layout, fault, seed))
        if not events:
            return None, said, 0
        rest = [each["message"] for each in events if each["event"] == "finding"]
        return events[0]["same"], (self.faults_of(events) or rest or [""])[0], events[0]["largest"]

    def faults(self, layout, faults):
        """All that are found, and what is said where nothing is."""
        events, said = self.compare(f"{self.folder}/0", "--candidate", command(layout, faults, 0), "--all-faults")
        return self.faults_of(events) or [said]

    @staticmethod
    def faults_of(events):
        return [each["message"] for each in events if each["event"] == "finding" and each["severity"] == "fault"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--seeds", type=int, default=5, help="of trainings without a fault")
    parser.add_argument("--only", action="append", metavar="FAULT", help="'' for those without one")
    options = parser.parse_args()
    start = time.monotonic()
    wrong, right, count = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        trainings = Trainings(options.lockstep, folder)
        trainings.record_reference(0)
        print("| fault | right, of the layouts | |\n|---|---|---|", flush=True)
        for fault, (layouts, expected) in FAULTS.items():
            if options.only and fault not in options.only:
                continue
            found = []
            for layout in layouts.split():
                same, said, _ = trainings.answer(layout, fault, 0)
                count += 1
                if same is not True and re.match(expected, said, re.DOTALL):
                    found.append(layout)
                else:
                    wrong.append(f"{layout}, {fault}: {said}")
            right += len(found)
            print(f"| {fault} | {len(found)} of {len(layouts.split())} | {', '.join(found)} |", flush=True)
        print(f"\nThe first value was right in {right} of {count} trainings with a fault.\n")
        print("| faults of one run | found, of the layouts | findings |\n|---|---|---|", flush=True)
        for faults, (layouts, expected) in COMBINED.items():
            if options.only and faults not in options.only:
                continue
            found, numbers = [], []
            for layout in layouts.split():
                said = trainings.faults(layout, faults)
                numbers.append(str(len(said)))
                if all(any(re.search(each, line, re.DOTALL) for line in said) for each in expected):
                    found.append(layout)
                else:
                    wrong.append(f"{layout}, {faults}: " + "\n    ".join(said))
            print(f"| {faults} | {len(found)} of {len(layouts.split())}: {', '.join(found)} | {', '.join(numbers)} |", flush=True)
        healthy = alarms = 0
        for seed in range(options.seeds if not options.only or "" in options.only else 0):
            if seed > 0:
                trainings.record_reference(seed)
            for layout in HEALTHY:
                same, said, largest = trainings.answer(layout, "", seed)
                healthy += 1
                if same is not True:
                    alarms += 1
                    wrong.append(f"{layout}, seed {seed}: {said}")
                print(f"| {layout} | seed {seed} | {largest:.2g} |", flush=True)
        print(f"\n{alarms} of {healthy} trainings without a fault were not called the same. {time.monotonic() - start:.0f} s.")
    for each in wrong:
        print(f"  wrong: {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
