#!/usr/bin/env python3
"""What happens where a process of a session is killed, or stopped for a while, in each phase of a session: the tables of docs/reliability.md.

Usage: pairs_test.py LOCKSTEP [WORD…]; rows that have all of the words. After each row the variable of each live rank must have its value, lines that were printed must be
there, and collectives must work once all ranks live again (harmed_session.py).
"""
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from harmed_session import RANKS, HarmedSession, check, send
from processes import start_time
from typed_session import numbers_of

LIMIT_S = 300  # ends what hangs; judges nothing
ALL = set(RANKS)

RELAY = "the relay of rank 2"  # in a session over two hosts, which are both this machine

# Victim: the ranks that live after it was killed, and what the session says then.
KILLED = {
    "rank 0": ({1, 2}, "✗ rank 0: SIGKILL"),
    "rank 1": ({0, 2}, "✗ rank 1: SIGKILL"),
    "all ranks": (set(), "no rank is left"),
    "the compiler": (ALL, "lockstep-compiler was killed by SIGKILL"),
    "the compiler's children": (ALL, ""),  # what is lost with them is made again, or the cell fails
    "the store": (ALL, "the store's process was killed by SIGKILL"),
    RELAY: ({0, 1}, "host two: its relay ended"),
    "the shell": (None, ""),
}
RANKS_OF = {"rank 0": [0], "rank 1": [1], "all ranks": list(RANKS), RELAY: [2]}
SSH = """#!/bin/sh
# ssh [OPTION…] HOST COMMAND…, on this machine.
while [ "${1#-}" != "$1" ]; do [ "$1" != -o ] || shift; shift; done
shift
exec sh -c "$*"
"""
PHASES = ("idle", "compiling", "loading", "running", "in a collective", "printing")  # of a cell
OF_RANKS = ("starting", "restarting", "shutting down")


def pids_of(s, victim):
    if victim == "the shell":
        return [s.session.pid]
    if victim == "the compiler":
        return s.compilers()
    if victim == "the compiler's children":
        compilers = s.compilers()
        return [pid for pid in compilers if parent_of(pid) in compilers]
    if victim == "the store":
        return [pid for pid, _ in s.processes("--store")]
    if victim == RELAY:
        return [parent_of(s.process_of(2))]
    return s.processes_of(RANKS_OF[victim])


def parent_of(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None  # it has ended
    return int(text[text.rindex(")") + 2:].split()[1])


def wait_until(is_so, s, what):
    """For what is no event to anybody here: the state of a process, the records of a journal."""
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        check(time.monotonic() < deadline, f"{what}; the session wrote last:\n{s.session.screen.end[-700:]}")
        s.session.pump(0.01)


def is_stopped(pid):
    """Or has ended, as copies of the compiler do."""
    try:
        tasks = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # a thread has ended: look again
    return start_time(pid) is None or all(task[task.rindex(")") + 2] == "T" for task in tasks)


def objects_of(pid):
    """What the process has mapped."""
    return {line.split(maxsplit=5)[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if ".so" in line}


def is_in_journal(s, cell):
    """Whether the session has written down that the cell runs next."""
    (journal,) = Path(s.environment["XDG_STATE_HOME"]).glob(f"lockstep/sessions/{s.session.pid}-*/cells.jsonl")
    events = [json.loads(line) for line in journal.read_text().split("\n")[:-1]]
    return any(event["event"] == "input" and event["text"] == cell for event in events)


class Phase:
    """Brings the session into a phase; release() lets the cell go on. Where the cell has an effect, it is that of `effect`."""

    def __init__(self, s, name, effect):
        self.s, self.name = s, name
        self.released = s.folder / "released"
        self.released.unlink(missing_ok=True)
        self.stopped = []
        self.held = []  # a rank that does not load the cell: the others wait for it
        wait = f'while (::access("{self.released}", F_OK) != 0) {{}}'
        goes, arrives, ends = (f'std::printf("%d {does}\\n", rank); std::fflush(stdout);' for does in ("goes", "arrives", "ends"))
        self.cell = f"{effect(s.random)} {ends}" if name in ("idle", "compiling", "loading") else ""
        if name == "compiling":
            self.stopped = s.compilers()
            for pid in self.stopped:
                send(pid, signal.SIGSTOP)
            s.session.type(self.cell)
            wait_until(lambda: is_in_journal(s, self.cell), s, "the cell is not in the journal")
        elif name == "loading":
            first, *self.held = s.processes_of([0, 2])
            loaded = objects_of(first)
            send(self.held[0], signal.SIGSTOP)
            s.session.type(self.cell)
            wait_until(lambda: objects_of(first) - loaded, s, "rank 0 does not load the cell")
        elif name == "running":
            s.session.type(f"{goes} {wait} {ends}")
        elif name == "in a collective":
            # Of more pieces than a rank can leave in the memory of its group.
            call = "{ auto data = torch::ones({1'000'000}); dist::all_reduce(data); }"
            s.session.type(f"{goes} if (rank == 2) {{ {wait} {arrives} }} {call} {ends}")
        elif name == "printing":
            s.session.type(f"{s.printing_until(self.released)} {ends}")
            s.session.wait_for_text(f"0:{s.cell}:")
        if name in ("running", "in a collective"):
            for rank in RANKS:
                s.session.wait_for_text(f"{rank} goes\n")

    def release(self, but=()):
        self.released.touch()
        for pid in (*self.stopped, *self.held):
            if pid not in but:
                send(pid, signal.SIGCONT)

    def wait_for_others(self, victim):
        """Until all is done that does not need what is stopped."""
        stopped = RANKS_OF.get(victim, [])
        others = [rank for rank in RANKS if rank not in stopped]
        # No rank runs a cell before all have loaded it.
        waits = self.name in ("idle", "compiling") and victim.startswith("the compiler")
        if victim == "the shell" or waits or self.name in ("idle", "compiling", "loading") and stopped:
            others = []
        for rank in others:
            if self.name != "in a collective" or not stopped:
                self.s.session.wait_for_text(f"{rank} ends\n")
            elif rank == 2:
                self.s.session.wait_for_text("2 arrives\n")
        if not others and victim != "the shell":
            self.s.session.type("%dist_status")
            for rank in RANKS:
                state = "no answer" if rank in stopped else r"\w+"
                wait_until(lambda: re.search(rf"^{rank} +{state} +\d+ ", self.s.session.screen.text(), re.MULTILINE), self.s,
                           f"%dist_status does not say {state} of rank {rank}")


def row(s, victim, is_killed, name):
    before = {rank: set(values) for rank, values in s.kept.items()}
    pids = pids_of(s, victim)
    lost = s.processes_of(RANKS_OF.get(victim, []))
    phase = Phase(s, name, s.effect if is_killed else s.certain_effect)
    live, says = KILLED[victim]
    if victim == "the compiler's children" and name == "compiling":
        pids = pids_of(s, victim)  # one of them compiles the cell
    if victim == "the shell" and is_killed:
        return shell_is_killed(s, phase)
    check(pids, f"there is no process of {victim}")
    for pid in pids:
        send(pid, signal.SIGKILL if is_killed else signal.SIGSTOP)
    if is_killed:
        if name == "in a collective":  # a rank outlives its relay for a moment, in which it would arrive
            wait_until(lambda: not any(start_time(pid) for pid in lost), s, f"ranks of {victim} do not end")
        s.live = set(live)
        s.store = victim != "the store"
    else:
        for pid in pids:
            wait_until(lambda: is_stopped(pid), s, f"process {pid} does not stop")
    phase.release(but=pids)
    if name == "idle" and not is_killed:
        s.session.type(phase.cell)
        if victim != "the shell":
            wait_until(lambda: is_in_journal(s, phase.cell), s, "the cell is not in the journal")
    elif victim in ("the compiler", "the compiler's children", "the store"):
        s.session.type(s.effect(s.random))  # the end of a compiler is found by the next cell
    if is_killed:
        if says:
            s.session.wait_for_text(says)
    else:
        phase.wait_for_others(victim)
        for pid in pids:
            send(pid, signal.SIGCONT)
    text = s.cells()
    if name == "printing":  # what a relay has not passed on is lost with it
        s.check_lines(text, None, s.live if victim == RELAY else RANKS, complete=s.live == ALL)
    if not is_killed:
        ended = {int(rank) for rank in re.findall(r"│ (\d) ends$", text, re.MULTILINE)}
        check(ended == ALL, f"ranks {ended} have run the cell: {text}")
    if name == "in a collective" and s.live not in (ALL, set()):
        left = re.findall(r"^. ranks? ([\d,-]+): lockstep::dist::PeerLeft.*\n +(.*)", text, re.MULTILINE)
        (rank,) = RANKS_OF[victim]
        check(set().union(*(numbers_of(ranks) for ranks, _ in left)) == s.live and all(f"rank {rank} left the collective all_reduce" in why for _, why in left),
              f"the others left the collective without an error that names rank {rank}: {text}")
    s.look()
    if name in ("compiling", "loading"):
        ran = {rank: s.kept[rank] != before[rank] for rank in s.live}
        check(len(set(ran.values())) < 2, f"the cell ran on some ranks only: {ran}")
    if not s.store or victim == RELAY and is_killed:
        s.live = set(ALL)
        s.cells("%dist_reset")
        s.define()
    elif s.live != ALL:
        s.live = set(ALL)
        text = s.cells("%restart")
        check("is back" in text, text)
    else:
        return
    s.look()


def shell_is_killed(s, phase):
    """Processes that are stopped end, too."""
    send(s.session.pid, signal.SIGKILL)
    s.session.wait_end()
    s.after_end(killed=True)


def row_of_ranks(s, victim, name):
    """A victim that is killed while ranks start, come back or end. What follows works as if it had been there."""
    if name == "starting":
        s.cells("%dist_shutdown")
        s.session.type("%dist_init")
        wait_until(lambda: len(ranks_of(s)) == len(RANKS), s, "the ranks are not started")
        ranks = ranks_of(s)
    elif name == "restarting":
        ranks = s.processes_of(RANKS)
        send(ranks[1], signal.SIGKILL)
        s.session.wait_for_text(KILLED["rank 1"][1])
        before = set(ranks_of(s))
        s.session.type("%restart")
        wait_until(lambda: set(ranks_of(s)) - before, s, "the rank is not started again")
        (ranks[1],) = set(ranks_of(s)) - before
    else:
        ranks = s.processes_of(RANKS)
    if victim not in RANKS_OF:
        pids = pids_of(s, victim)
    else:
        pids = [ranks[rank] for rank in RANKS_OF[victim]]
        pids = [parent_of(pid) for pid in pids] if victim == RELAY else pids
    if name == "shutting down":
        s.session.type("%dist_shutdown")
    if victim == "the shell":
        return shell_is_killed(s, None)
    for pid in pids:
        send(pid, signal.SIGKILL)
    s.session.settle()  # it says what has happened, or that it was too late for that
    s.live, s.store = set(ALL), True
    s.cells("%dist_reset")
    s.define()
    s.look()


def ranks_of(s):
    """The processes of ranks, as they were started: at the start of a session in the order of ranks."""
    return sorted(pid for (pid, _), command in s.processes("lockstep-worker").items() if command.endswith("lockstep-worker"))


def main():
    failed = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-pairs-") as folder:
        sessions = {False: HarmedSession(sys.argv[1], Path(folder, "here"), LIMIT_S),
                    True: HarmedSession(sys.argv[1], Path(folder, "hosts"), LIMIT_S, ("--hosts", "one,two"))}
        ssh = Path(folder, "ssh")
        ssh.write_text(SSH)
        ssh.chmod(0o700)
        sessions[True].environment["PATH"] = f"{folder}:{os.environ['PATH']}"
        for s in sessions.values():
            s.random = random.Random(1)  # a text that comes again would run its object again, without a compiler
        for is_killed in (True, False):
            for victim in KILLED:
                s = sessions[victim == RELAY]
                for name in (*PHASES, *(OF_RANKS if is_killed else ())):
                    title = f"{victim}, {'killed' if is_killed else 'stopped for a while'}: {name}"
                    if not all(word in title for word in sys.argv[2:]):
                        continue
                    begin = time.monotonic()
                    try:
                        if not s.session:
                            s.begin()
                        if name in OF_RANKS:
                            row_of_ranks(s, victim, name)
                        else:
                            row(s, victim, is_killed, name)
                    except Exception as error:  # also one of this test: the other rows are wanted
                        failed += 1
                        if not isinstance(error, AssertionError):
                            traceback.print_exc(file=sys.stdout)
                        print(f"  FAILED: {error}", flush=True)
                        if s.session:
                            s.session.__exit__()
                            s.session = None
                    print(f"{time.monotonic() - begin:5.1f} s  {title}", flush=True)
        for has_relays, s in sessions.items():
            s.leave(killed=has_relays)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
