#!/usr/bin/env python3
"""What happens where a process of a session is killed, stopped for a while, or slow, in each phase of a session: the table of docs/reliability.md.

Usage: pairs_test.py LOCKSTEP [WORD…]; rows that have all of the words. After each row the variable of each live rank must have its value, lines that were printed must be
there, and collectives must work once all ranks live again (harmed_session.py). Of each row two times are printed: until the session had answered (of what is killed since
its death, of what was stopped since it went on, of what is slow since it was asked), and of the whole row.
"""
import json
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from harmed_session import RANKS, HarmedSession, check, send
from processes import start_time, stat_of
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
HARMS = ("killed", "stopped for a while", "slow")
RUN_S, PAUSE_S = 0.005, 0.045  # of what is slow
SSH = """#!/bin/sh
# ssh [OPTION…] HOST COMMAND…, on this machine.
while [ "${1#-}" != "$1" ]; do [ "$1" != -o ] || shift; shift; done
shift
exec sh -c "$*"
"""
PHASES = ("idle", "compiling", "loading", "running", "in a collective", "printing")  # of a cell


def pids_of(s, victim):
    """Those that there are: without a question to the session, also while it starts."""
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
        return [pid for pid, _ in s.processes("relay --hub")][-1:]  # hosts are started in their order
    ranks = ranks_of(s)
    return [ranks[rank] for rank in RANKS_OF[victim] if rank in ranks]


def ranks_of(s):
    """{rank: pid}, from their environments."""
    found = {}
    for (pid, _), command in s.processes("lockstep-worker").items():
        if command.endswith("lockstep-worker"):
            try:
                words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended
            found.update({int(word[14:]): pid for word in words if re.fullmatch(rb"LOCKSTEP_RANK=\d+", word)})
    return found


class Slow:
    """Lets the processes of a victim run a tenth of the time, those that come later too."""

    def __init__(self, s, victim):
        self.pids = lambda: pids_of(s, victim)
        self.over = threading.Event()
        self.executor = ThreadPoolExecutor(1)

    def __enter__(self):
        self.stopped = self.stop()
        self.thread = self.executor.submit(self.run)

    def stop(self):
        pids = self.pids()
        for pid in pids:
            send(pid, signal.SIGSTOP)
        return pids

    def run(self):
        is_over = False
        while not is_over:
            is_over = self.over.wait(PAUSE_S)
            go_on(self.stopped)
            is_over = is_over or self.over.wait(RUN_S)
            self.stopped = [] if is_over else self.stop()

    def __exit__(self, *error):
        self.over.set()
        self.thread.result()
        self.executor.shutdown()


def parent_of(pid):
    """None where it has ended."""
    fields = stat_of(pid)
    return int(fields[1]) if fields else None


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
            ranks = ranks_of(s)
            first, self.held = ranks[0], [ranks[2]]
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

    def check_whole(self, text):
        """Whether all ranks have run the cell to its end, and nothing is reported."""
        check("✗" not in text, text)
        if self.name == "printing":
            self.s.check_lines(text, None, RANKS)
        check_ended(text, ALL)

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


def check_ended(text, ranks):
    ended = {int(rank) for rank in re.findall(r"│ (\d) ends$", text, re.MULTILINE)}
    check(ranks <= ended, f"ranks {ended} have run the cell, not {ranks}: {text}")


def stop(s, pids):
    for pid in pids:
        send(pid, signal.SIGSTOP)
    for pid in pids:
        wait_until(lambda: is_stopped(pid), s, f"process {pid} does not stop")


def go_on(pids):
    for pid in pids:
        send(pid, signal.SIGCONT)


def kill(s, pids):
    """Until their parents know."""
    check(pids, "there is no such process")
    for pid in pids:
        send(pid, signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), s, "processes that were killed are still there")


def wait_until_idle(s):
    """Until no process of the session uses time."""
    last, deadline = None, time.monotonic() + LIMIT_S
    while last != (last := {pid: stat_of(pid)[11:13] for pid, _ in s.processes()}):
        check(time.monotonic() < deadline, "a process of the session goes on using time")
        s.session.pump(0.1)


def harmed(s):
    s.harmed_at = time.monotonic()


def answer(s):
    text = s.cells()
    s.answered = time.monotonic() - s.harmed_at
    return text


def check_unharmed(text):
    check(not re.search(r"✗|no answer|not answer|\bhang\b|killed|\bdead\b", text), f"what is alive is reported: {text}")


def row(s, victim, harm, name):
    before = {rank: set(values) for rank, values in s.kept.items()}
    is_killed = harm == "killed"
    pids = pids_of(s, victim)
    ranks = ranks_of(s)
    phase = Phase(s, name, s.effect if is_killed else s.certain_effect)
    live, says = KILLED[victim]
    if victim == "the compiler's children" and name == "compiling":
        pids = pids_of(s, victim)  # one of them compiles the cell
    check(pids, f"there is no process of {victim}")
    harmed(s)
    if victim == "the shell" and is_killed:
        return shell_is_killed(s)
    if harm == "slow":
        with Slow(s, victim):
            phase.release(but=pids)
            s.session.type(phase.cell if name == "idle" else s.certain_effect(s.random))
            text = answer(s)
            s.look()
        check_unharmed(text)
        return phase.check_whole(text)
    if is_killed:
        for pid in pids:
            send(pid, signal.SIGKILL)
        if name == "in a collective":  # a rank outlives its relay for a moment, in which it would arrive
            wait_until(lambda: not any(start_time(ranks[rank]) for rank in RANKS_OF.get(victim, [])), s, f"ranks of {victim} do not end")
        s.live = set(live)
        s.store = victim != "the store"
    else:
        stop(s, pids)
    phase.release(but=pids)
    if name == "idle" and not is_killed:
        s.session.type(phase.cell)
        if victim != "the shell":
            wait_until(lambda: is_in_journal(s, phase.cell), s, "the cell is not in the journal")
    elif victim in ("the compiler", "the compiler's children", "the store"):
        s.session.type(s.effect(s.random))  # the end of a compiler is found by the next cell
    if not is_killed:
        phase.wait_for_others(victim)
        harmed(s)
        go_on(pids)
    elif says:
        s.session.wait_for_text(says)
    text = answer(s)
    if not is_killed:
        phase.check_whole(text)
    elif name == "printing":  # what a relay has not passed on is lost with it
        s.check_lines(text, None, s.live if victim == RELAY else RANKS, complete=s.live == ALL)
    if name in ("running", "printing") or name == "in a collective" and s.live == ALL:
        check_ended(text, s.live)
    if name == "in a collective" and s.live not in (ALL, set()):
        left = re.findall(r"^. ranks? ([\d,-]+): lockstep::dist::PeerLeft.*\n +(.*)", text, re.MULTILINE)
        (rank,) = RANKS_OF[victim]
        check(set().union(*(numbers_of(ranks) for ranks, _ in left)) == s.live and all(f"rank {rank} left the collective all_reduce" in why for _, why in left),
              f"the others left the collective without an error that names rank {rank}: {text}")
    s.look()
    if name in ("compiling", "loading"):
        ran = {rank: s.kept[rank] != before[rank] for rank in s.live}
        check(len(set(ran.values())) < 2, f"the cell ran on some ranks only: {ran}")
    bring_back(s, victim)


def bring_back(s, victim):
    """All ranks, after a death."""
    if s.live == ALL and s.store:
        return
    lost_host = victim == RELAY
    s.live = set(ALL)
    if lost_host or not s.store:
        s.cells("%dist_reset")
        s.define()
    else:
        text = s.cells("%restart")
        check("is back" in text, text)
    s.look()


def shell_is_killed(s):
    """Processes that are stopped end, too."""
    send(s.session.pid, signal.SIGKILL)
    s.session.wait_end()
    s.after_end(killed=True)
    s.answered = time.monotonic() - s.harmed_at


def shutting_down(s, victim, harm):
    """What is stopped is ended by force."""
    pids = pids_of(s, victim)
    harmed(s)
    if harm == "slow":
        with Slow(s, victim):
            s.session.type("%dist_shutdown")
            text = answer(s)
    else:
        ranks = ranks_of(s)
        free = ranks.pop(0 if victim == "rank 1" else 1)  # its end says that the session ends them
        if harm != "killed":
            stop(s, pids)
        else:
            stop(s, [*ranks.values(), *(pids if victim != "the shell" else ())])
        s.session.type("%dist_shutdown")
        if harm == "killed":
            wait_until(lambda: not Path(f"/proc/{free}").exists(), s, "no rank ends")
            harmed(s)
            if victim == "the shell":
                return shell_is_killed(s)
            for pid in pids:
                send(pid, signal.SIGKILL)
            go_on(ranks.values())
        elif victim == "the shell":
            harmed(s)
            go_on(pids)
        text = answer(s)
    check_unharmed(text)
    check_shut_down(s, text)


def check_shut_down(s, text):
    check("the ranks have ended; the next cell starts them afresh" in text, text)
    wait_until(lambda: not s.processes(), s, "processes are left")
    s.live = set()


# What the session says where the victim is killed before all ranks are there.
NOT_STARTED = {
    "rank 0": "rank 0 was killed by SIGKILL while it started",
    "rank 1": "rank 1 was killed by SIGKILL while it started",
    "all ranks": "was killed by SIGKILL while it started",
    "the compiler": "lockstep-compiler was killed by SIGKILL",
    "the compiler's children": "the compiler crashed while it read the precompiled header",
    "the store": "the store's process was killed by SIGKILL",
    RELAY: "host two: its relay ended",
}


def starting(s, victim, harm):
    if s.live:
        check_shut_down(s, s.cells("%dist_shutdown"))
    s.live, of_compiler = set(ALL), victim.startswith("the compiler")
    if harm == "slow":
        harmed(s)
        with Slow(s, victim):
            s.session.type("%dist_init")
            text = answer(s)
    else:
        # The session does not start before what is held goes on.
        held = s.compilers if not of_compiler else lambda: [pid for pid, _ in s.processes("--ranks")]
        s.session.type("%dist_init")
        wait_until(held, s, "nothing starts")
        held = held()
        stop(s, held)
        wait_until(lambda: pids_of(s, victim) if of_compiler else len(ranks_of(s)) == len(RANKS), s, f"{victim} does not start")
        pids = pids_of(s, victim)
        harmed(s)
        if harm == "killed":
            if victim == "the shell":
                return shell_is_killed(s)
            held += [pid for pid in ranks_of(s).values() if pid not in pids]
            stop(s, held)  # others would say that they have lost it, before the session knows of its death
            kill(s, pids)
            go_on(held)
        else:
            stop(s, pids)
            go_on(held)
            wait_until_idle(s)
            if victim in RANKS_OF and victim != RELAY or victim == "the compiler":
                check("✓" not in s.session.screen.text(), f"the session started without {victim}")
            harmed(s)
            go_on(pids)
        text = answer(s)
    if harm == "killed":
        check(re.search(f"✗ the session could not start: .*{NOT_STARTED[victim]}", text), text)
        wait_until(lambda: not s.processes(), s, "processes are left")
    else:
        check_unharmed(text)
        check(f"✓ {len(RANKS)} ranks" in text, text)
    s.define()
    s.look()


def restarting(s, victim, harm):
    held, reached = s.folder / "held", s.folder / "reached"
    held.unlink(missing_ok=True)  # of a row that failed
    # A cell that waits where it runs again.
    s.cells(f'if (::access("{held}", F_OK) == 0) {{ ::creat("{reached}", 0600); while (::access("{held}", F_OK) == 0) {{}} }}')
    reached.unlink(missing_ok=True)
    if harm != "slow":
        held.touch()
    send(ranks_of(s)[1], signal.SIGKILL)
    s.session.wait_for_text("%dist_reset starts all ranks afresh")  # the end of what is said of the death
    s.session.screen.take()
    s.session.type("%restart")
    harmed(s)
    if harm == "slow":
        with Slow(s, victim):
            text = answer(s)
    else:
        wait_until(reached.exists, s, "no cell runs again")
        pids = pids_of(s, victim)
        harmed(s)
        if harm == "killed":
            if victim == "the shell":
                return shell_is_killed(s)
            kill(s, pids)
            s.live, s.store = set(KILLED[victim][0]), victim != "the store"
            if not s.store:
                s.live.remove(1)  # it can't connect
        else:
            stop(s, pids)
        held.unlink()
        if victim.startswith("the compiler"):
            s.session.wait_for_text("rank 1 is back")
            s.session.type(s.effect(s.random))
        if harm == "killed":
            s.session.wait_for_text(KILLED[victim][1])
        else:
            wait_until_idle(s)
            harmed(s)
            go_on(pids)
        text = answer(s)
    if harm != "killed":
        check_unharmed(text)
    check(("rank 1 is back" in text) == (1 in s.live), text)
    s.look()
    bring_back(s, victim)


OF_RANKS = {"shutting down": shutting_down, "starting": starting, "restarting": restarting}


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
        for harm in HARMS:
            for victim in KILLED:
                s = sessions[victim == RELAY]
                for name in (*PHASES, *OF_RANKS):
                    title = f"{victim}, {harm}: {name}"
                    if not all(word in title for word in sys.argv[2:]):
                        continue
                    begin = time.monotonic()
                    s.answered = 0.0
                    try:
                        if not s.session:
                            s.begin()
                        elif not s.live and name != "starting":
                            s.live = set(ALL)
                            s.define()
                        if name in OF_RANKS:
                            OF_RANKS[name](s, victim, harm)
                        else:
                            row(s, victim, harm, name)
                    except Exception as error:  # also one of this test: the other rows are wanted
                        failed += 1
                        if not isinstance(error, AssertionError):
                            traceback.print_exc(file=sys.stdout)
                        print(f"  FAILED: {error}", flush=True)
                        if s.session:
                            s.session.__exit__()
                            s.session = None
                    print(f"{s.answered:5.1f} s {time.monotonic() - begin:5.1f} s  {title}", flush=True)
        for has_relays, s in sessions.items():
            s.leave(killed=has_relays)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
