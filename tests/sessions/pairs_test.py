#!/usr/bin/env python3
"""What happens where a process of a session is killed, or stopped for a while, in each phase of a cell: the table of docs/reliability.md.

Usage: pairs_test.py LOCKSTEP. After each row the variable of each live rank must have its value, lines that were printed must be
there, and collectives must work once all ranks live again (harmed_session.py).
"""
import random
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from harmed_session import RANKS, HarmedSession, check, send

LIMIT_S = 300  # ends what hangs; judges nothing
LINES = 50_000
ALL = set(RANKS)

# Victim: the ranks that live after it was killed, and what the session says then.
KILLED = {
    "rank 0": ({1, 2}, "✗ rank 0: SIGKILL"),
    "rank 1": ({0, 2}, "✗ rank 1: SIGKILL"),
    "all ranks": (set(), "no rank is left"),
    "the compiler": (ALL, "lockstep-compiler was killed by SIGKILL"),
    "the store": (ALL, "the store's process was killed by SIGKILL"),
}
PHASES = ("idle", "compiling", "running", "in a collective", "printing")


def pids_of(s, victim):
    if victim == "the compiler":
        return s.compilers()
    if victim == "the store":
        return [pid for pid, _ in s.processes("--store")]
    return [s.process_of(rank) for rank in RANKS if victim in ("all ranks", f"rank {rank}")]


class Phase:
    """Brings the session into a phase; release() lets the cell go on."""

    def __init__(self, s, name):
        self.s, self.name = s, name
        self.released = s.folder / "released"
        self.released.unlink(missing_ok=True)
        self.stopped = []
        wait = f'while (::access("{self.released}", F_OK) != 0) {{}}'
        goes = 'std::printf("%d goes\\n", rank); std::fflush(stdout);'
        if name == "compiling":
            self.stopped = s.compilers()
            for pid in self.stopped:
                send(pid, signal.SIGSTOP)
            s.session.type(s.effect(random.Random(name)))
        elif name == "running":
            s.session.type(f"{goes} {wait}")
        elif name == "in a collective":
            s.session.type(f"{goes} if (rank == 2) {wait} dist::barrier();")
        elif name == "printing":
            s.session.type(s.printing(LINES))
            s.session.wait_for_text(f"0:{s.cell}:")
        if name in ("running", "in a collective"):
            for rank in RANKS:
                s.session.wait_for_text(f"{rank} goes\n")

    def release(self):
        self.released.touch()
        for pid in self.stopped:
            send(pid, signal.SIGCONT)


def row(s, victim, is_killed, name):
    before = {rank: set(values) for rank, values in s.kept.items()}
    pids = pids_of(s, victim)
    phase = Phase(s, name)
    live, says = KILLED[victim]
    for pid in pids:
        send(pid, signal.SIGKILL if is_killed else signal.SIGSTOP)
    if is_killed:
        s.live = set(live)
        s.store = victim != "the store"
    phase.release()
    if victim in ("the compiler", "the store"):
        s.session.type(s.effect(random.Random(name)))  # the end of a compiler is found by the next cell
    if is_killed:
        s.session.wait_for_text(says)
    for pid in pids:
        send(pid, signal.SIGCONT)
    text = s.cells()
    if name == "printing":
        s.check_lines(text, LINES, RANKS, complete=s.live == ALL)
    if name == "in a collective" and s.live not in (ALL, set()):
        check("barrier" in text, f"the others left the collective without an error: {text}")
    s.look()
    if name == "compiling":
        ran = {rank: s.kept[rank] != before[rank] for rank in s.live}
        check(len(set(ran.values())) < 2, f"the cell ran on some ranks only: {ran}")
    if not s.store:
        s.cells("%dist_reset")
        s.define()
    elif s.live != ALL:
        s.live = set(ALL)
        text = s.cells("%restart")
        check("is back" in text, text)
    s.look()


def main():
    failed = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-pairs-") as folder:
        s = HarmedSession(sys.argv[1], Path(folder), LIMIT_S)
        for is_killed in (True, False):
            for victim in KILLED:
                for name in PHASES:
                    print(f"{victim}, {'killed' if is_killed else 'stopped for a while'}: {name}", flush=True)
                    try:
                        if not s.session:
                            s.begin()
                        row(s, victim, is_killed, name)
                    except AssertionError as error:
                        failed += 1
                        print(f"  FAILED: {error}", flush=True)
                        s.session.__exit__()
                        s.session = None
        s.leave()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
