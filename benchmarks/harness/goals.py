"""The goals: what each path may cost, absolutely and beside other tools in the same run."""
from dataclasses import dataclass, field


@dataclass
class Goal:
    text: str
    what: str  # of lockstep's record
    ranks: int
    limit: float = None  # in the record's unit
    ratios: list = field(default_factory=list)  # (at most, subject, what)
    limit_95: float = None  # of the 95th percentile


NBD, JD, IPP = "nbdistributed", "jupyter-distributed", "ipyparallel"
CELLS = {"module": ("module class and optimizer", 60), "training_loop": ("training loop of the lesson", 60),
         "data_loader": ("TensorDataset and DataLoader", 60), "sequential": ("Sequential of six", 100)}

GOALS = [
    Goal("start to first output, 2 ranks", "start", 2, 2.0, [(0.6, NBD, "start")]),
    Goal("start to first output, 4 ranks", "start", 4, None, [(0.5, JD, "start"), (0.6, NBD, "start")]),
    Goal("`int k = 1;`, 2 ranks", "cell.declaration", 2, 15, [(0.15, NBD, "cell.value")]),
    Goal("`k + 1`, 2 ranks", "cell.value", 2, 15, [(1, IPP, "cell.value"), (0.15, NBD, "cell.value")]),
    Goal("`int k = 1;`, 4 ranks", "cell.declaration", 4, None, [(1, JD, "cell.value"), (0.15, NBD, "cell.value")]),
    Goal("`k + 1`, 4 ranks", "cell.value", 4, None,
         [(0.6, IPP, "cell.value"), (1, JD, "cell.value"), (0.15, NBD, "cell.value")]),
    Goal("`int k = 1;`, 8 ranks", "cell.declaration", 8, None, [(0.7, IPP, "cell.value")]),
    Goal("`k + 1`, 8 ranks", "cell.value", 8, None, [(0.35, IPP, "cell.value")]),
    *[Goal(f"what the journal adds to a cell, {ranks} ranks", "journal.cell", ranks, 1) for ranks in (2, 8)],
    Goal("a magic that the shell answers, 8 ranks", "cell.magic", 8, 3, [(0.2, IPP, "cell.execute")]),
    Goal("a magic that all ranks answer (`%sync`), 8 ranks", "cell.magic_sync", 8, 3, [(0.2, IPP, "cell.execute")]),
    Goal("the same text again, 8 ranks", "cell.repeated", 8, 3, [(0.2, IPP, "cell.execute")]),
    *[Goal(f"compile: {text}", f"torch.{name}.compile", 2, limit) for name, (text, limit) in CELLS.items()],
    *[Goal(f"object: {text}", f"torch.{name}.object", 2, 80) for name, (text, _) in CELLS.items()],
    *[Goal(f"compile with `%%debug`: {text}", f"torch_debug.{name}.compile", 2) for name, (text, _) in CELLS.items()],
    *[Goal(f"object with `%%debug`: {text}", f"torch_debug.{name}.object", 2) for name, (text, _) in CELLS.items()],
    Goal("Jupyter kernel: start to ready, 2 ranks", "kernel.start", 2, 1.0),
    Goal("Jupyter kernel: the first cell is done, 2 ranks", "kernel.first_cell", 2),
    Goal("Jupyter kernel: `k + 1`, 2 ranks", "kernel.value", 2, 20, [(0.4, NBD, "cell.value")]),
    Goal("Jupyter kernel: the same text again, 2 ranks", "kernel.repeated", 2),
    *[Goal(f"Jupyter kernel: completion of {text}", f"kernel.complete.{name}", 2, 60, limit_95=150)
      for name, text in (("member", "`net->`"), ("namespace", "`torch::nn::`"), ("name", "a name"), ("magic", "a magic"))],
    Goal("Jupyter kernel: 100,000 lines of each of 4 ranks", "kernel.flood", 4, 3.0),
    Goal("20 sessions that start at once: all have their first value", "20 sessions.ready", 2, 15),
    Goal("20 sessions: memory of all", "20 sessions.memory", 2, 2500),
    Goal("memory of the shell, idle", "memory.shell.resident", 2, 40),
    Goal("memory of the compiler, idle", "memory.compiler.resident", 2, 450),
    Goal("memory of a worker, idle", "memory.worker.resident", 2, 250),
    Goal("1,000 cells: last tenth against first", "many.growth", 2, 1.2),
    *[Goal(f"1,000 cells: growth of the {role}", f"many.memory.{role}", 2) for role in ("shell", "compiler", "worker", "store")],
    Goal("100 MB of output in lines", "output.lines", 2),
    Goal("100 MB of output in one piece", "output.piece", 2),
    *[Goal(f"an iteration of an empty loop, {level}, {text}", f"loop.{level}.{kind}", 2)
      for level in ("O0", "O2") for kind, text in (("polled", "that can be interrupted"), ("bare", "that cannot"))],
    Goal("`k + 1`, 1,024 stub ranks: processor time of the shell", "scale.64_hosts.value.processor", 1024, 10),
    Goal("an object of 2 MB, 1,024 stub ranks: processor time of the shell", "scale.64_hosts.object_2_mb.processor", 1024, 150),
    Goal("memory of the shell after 1 MB of output of each", "scale.64_hosts.memory.after_output", 1024, 150),
    Goal("`k + 1`, 256 stub ranks: until its end", "scale.16_hosts.value.elapsed", 256, 100),
    *[Goal(f"what that adds to the memory of the {role}", f"output.memory.{role}", 2) for role in ("shell", "worker")],
]


def rows(results):
    """(text, goal, measured, verdict) of every goal that something was measured for."""
    for goal in GOALS:
        mine = results.median("lockstep", goal.what, goal.ranks)
        if mine is None:
            continue
        unit = results.unit("lockstep", goal.what)
        wanted, measured, met = [], [f"{mine:.3g} {unit}"], []
        if goal.limit is not None:
            wanted.append(f"≤ {goal.limit:g} {unit}")
            met.append(mine <= goal.limit)
        if goal.limit_95 is not None:
            high = results.percentile_95("lockstep", goal.what, goal.ranks)
            wanted.append(f"p95 ≤ {goal.limit_95:g} {unit}")
            measured.append(f"p95 {high:.3g} {unit}")
            met.append(high <= goal.limit_95)
        for most, subject, what in goal.ratios:
            other = results.median(subject, what, goal.ranks)
            wanted.append(f"≤ {most:g} × {subject}")
            if other is not None:
                measured.append(f"{mine / other:.2f} × {subject} ({other:.3g} {unit})")
                met.append(mine / other <= most)
        verdict = "stated" if not wanted else "" if not met else "met" if all(met) else "missed"
        yield goal.text, "; ".join(wanted) or "stated", "; ".join(measured), verdict
