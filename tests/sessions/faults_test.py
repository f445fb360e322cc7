#!/usr/bin/env python3
"""Kills what can be killed, in the middle of a cell, and looks for what is left. Usage: faults_test.py LOCKSTEP [TEST...]

Rule 6 and 7 of docs/architecture.md.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from processes import descendants, parent, wait_gone

LOCKSTEP = sys.argv[1]
LIMIT = 600


class Session:
    """`lockstep run` of a script, whose JSON lines are read as they come. A cell can wait for release()."""

    def __init__(self, script, *options, runtime=False):
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name) / "session.cpp"
        path.write_text(script)
        self.released = pathlib.Path(self.folder.name) / "released"
        environment = dict(os.environ, XDG_RUNTIME_DIR=self.folder.name) if runtime else None
        self.process = subprocess.Popen([LOCKSTEP, "run", str(path), "--json", "-", "--arg", f"released={self.released}", *options], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=environment)
        self.events = []

    def until(self, what):
        """Reads events until what(event) is true, and returns that one; None at the end, or when it takes too long."""
        watchdog = threading.Timer(LIMIT, self.process.kill)
        watchdog.start()
        try:
            return self._until(what)
        finally:
            watchdog.cancel()

    def _until(self, what):
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            if what(event):
                return event
        return None

    def until_text(self, text):
        return self.until(lambda e: e["event"] == "output" and text in e.get("text", ""))

    def release(self):
        self.released.touch()

    def finish(self):
        self.until(lambda e: False)
        return self.process.wait(timeout=LIMIT)

    def of(self, kind):
        return [e for e in self.events if e["event"] == kind]

    def processes(self, part=""):
        return {key: name for key, name in descendants(self.process.pid).items() if part in name}

    def workers(self):
        return {key: name for key, name in self.processes("lockstep-worker").items()
                if "--store" not in name and "--ranks" not in name}

    def starter(self):
        """The process that the ranks are copies of."""
        (pid, _), = self.processes("--ranks")
        return pid


LOOP = """// %% loop
#include <unistd.h>
std::cout << "looping " << getpid() << std::endl;
while (::access(arg("released").c_str(), F_OK) != 0) {
}
// %% next
std::cout << "next" << std::endl;
"""

CHILDREN = """// %% leave a process behind
#include <unistd.h>
if (fork() == 0) for (;;) pause();
std::cout << "forked" << std::endl;
for (volatile long i = 0;; i = i + 1) {
}
"""


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def check_gone(processes):
    left = wait_gone(processes)
    for pid, _ in left:
        os.kill(pid, signal.SIGKILL)
    check(not left, f"left behind: {left}")


def test_kill_the_shell():
    session = Session(CHILDREN, "-n", "2")
    check(session.until_text("forked"), "the cell did not run")
    everything = session.processes()
    check(len(everything) >= 6, f"store, compiler, two workers and their children were expected: {everything}")
    session.process.kill()
    session.process.wait()
    check_gone({key: name for key, name in everything.items() if "--template" not in name})


def test_kill_a_worker():
    session = Session(LOOP, "-n", "2", "--keep-going")
    check(session.until_text("looping"), "the cell did not run")
    (victim, _), *_ = sorted(session.workers())
    os.kill(victim, signal.SIGKILL)
    check(session.until(lambda e: e["event"] == "error"), "the death was not seen")
    session.release()
    everything = session.processes()
    code = session.finish()
    check(code == 5, f"exit code {code}")
    errors = [e for e in session.of("error") if e["type"] == "SIGKILL"]
    check(len(errors) == 1 and len(errors[0]["ranks"]) == 1, f"{session.of('error')}")
    last = [e for e in session.of("output") if "next" in e.get("text", "")]
    check(last and len(last[0]["ranks"]) == 1, "the other rank did not go on")
    check_gone(everything)


def test_kill_what_ranks_are_copies_of():
    session = Session(LOOP, "-n", "3")
    check(session.until_text("looping"), "the cell did not run")
    workers = session.workers()
    check(len(workers) == 3, f"three ranks were expected: {session.processes()}")
    os.kill(session.starter(), signal.SIGKILL)
    told = session.until(lambda e: "that ranks are copies of was killed by SIGKILL" in e.get("text", ""))
    check(told, "the session has not said it")
    check(session.workers() == workers, "ranks have not outlived it")
    session.release()
    everything = session.processes()
    check(session.finish() == 0, "the session failed")
    last = [e for e in session.of("output") if "next" in e.get("text", "")]
    check({rank for e in last for rank in e["ranks"]} == {0, 1, 2}, f"not all ranks went on: {last}")
    check_gone(everything)


def test_kill_the_compiler():
    session = Session(LOOP, "-n", "2", "--keep-going")
    check(session.until_text("looping"), "the cell did not run")
    for pid, _ in session.processes("lockstep-compiler"):
        os.kill(pid, signal.SIGKILL)
    session.release()
    everything = session.processes()
    session.finish()
    check([e for e in session.of("output") if "next" in e.get("text", "")], f"the session did not go on: {session.events}")
    check_gone(everything)


READY = """// %% ready
#include <unistd.h>
int kept = 6;
std::cout << "ready" << std::endl;
while (::access(arg("released").c_str(), F_OK) != 0) {
}
// %% compiles
int more = kept + 1;
// %% next
std::cout << "kept " << kept << std::endl;
"""


def stop_the_compiler(session):
    """The process that the session talks to, before it has heard how the cell that runs ends: the next one waits for it."""
    check(session.until_text("ready"), "the cell did not run")
    pids = {pid for pid, _ in session.processes("lockstep-compiler")}
    (supervisor,) = [pid for pid in pids if parent(pid) not in pids]
    os.kill(supervisor, signal.SIGSTOP)
    session.release()


def test_stop_the_compiler():
    """In one session nothing else happens; in the other one a worker dies while the cell waits for its compiler."""
    stopped, other = (Session(READY, "-n", "2", "--keep-going", "--compile-timeout", "4") for _ in range(2))
    for session in (stopped, other):
        stop_the_compiler(session)
    check(other.until(lambda e: e["event"] == "cell"), "the first cell did not end")
    (victim, _), *_ = sorted(other.workers())
    os.kill(victim, signal.SIGKILL)
    everything = {**stopped.processes(), **other.processes()}
    codes = stopped.finish(), other.finish()
    check(codes == (0, 5), f"exit codes {codes}, {stopped.events}, {other.events}")
    check([e for e in stopped.of("message") if "did not answer within" in e["text"]], f"{stopped.of('message')}")
    check("kept 6" in "".join(e["text"] for e in stopped.of("output") if 0 in e["ranks"]), "names are gone")
    check([e["status"] for e in other.of("cell")] == ["ok", "dead", "ok"], f"{other.of('cell')}")
    last = [e for e in other.of("output") if e["cell"] == 3]
    check("".join(e["text"] for e in last) == "kept 6\n" and all(len(e["ranks"]) == 1 for e in last),
          f"the other rank did not go on: {other.events}")
    check_gone(everything)


def test_kill_states_of_the_compiler():
    """One of the processes that wait for the next cell, or all of them but the one that watches over them: no cell fails."""
    expected = 4  # before the cell and after it, and two copies
    for count in (1, 2, 3, 4):
        session = Session(LOOP, "-n", "1", "--keep-going")
        check(session.until_text("looping"), "the cell did not run")
        states = []
        end = time.monotonic() + 120
        while len(states) < expected and time.monotonic() < end:
            states = sorted(pid for pid, _ in session.processes("lockstep-compiler"))[1:]  # the first one watches over the others
        check(len(states) == expected, f"{session.processes('lockstep-compiler')}")
        for pid in states[-count:]:
            os.kill(pid, signal.SIGKILL)
        session.release()
        everything = session.processes()
        session.finish()
        check([cell["status"] for cell in session.of("cell")] == ["ok", "ok"], f"{count} killed: {session.events}")
        check_gone(everything)


def test_interrupt():
    session = Session(LOOP, "-n", "2")
    check(session.until_text("looping"), "the cell did not run")
    everything = session.processes()
    begin = time.monotonic()
    session.process.send_signal(signal.SIGINT)
    cell = session.until(lambda e: e["event"] == "cell")
    took = time.monotonic() - begin
    check(cell and cell["status"] == "interrupted", f"{cell}")
    check(session.finish() == 130, "exit code")
    check_gone(everything)
    print(f"  interrupted after {took * 1000:.0f} ms")


def test_interrupt_sleep_and_collective():
    waits = "if (rank == 0) dist::barrier(); else for (;;) ::sleep(1000);"
    for body, backend in (("std::this_thread::sleep_for(std::chrono::hours(1));", "auto"), (waits, "shared_memory"), (waits, "gloo")):
        session = Session("// %% a\n#include <thread>\n#include <unistd.h>\nstd::cout << \"in\" << std::endl;\n" + body + "\n",
                          "-n", "2", "--backend", backend)
        check(session.until_text("in"), "the cell did not run")
        session.process.send_signal(signal.SIGINT)
        cell = session.until(lambda e: e["event"] == "cell")
        check(cell and cell["status"] == "interrupted", f"{cell}")
        check(session.finish() == 130, "exit code")


def test_output_before_a_death():
    """Rule 5: what was written before a rank died is shown, by which signal it was, and how much."""
    for name, sizes in (("SIGKILL", (3, 137, 70_000, 5_000_000)), ("SIGSEGV", (70_000,)), ("SIGTERM", (1_100_000,))):
        for size in sizes:
            session = Session(f"""// %% dies
#include <signal.h>
#include <unistd.h>
std::string text({size}, 'x');
for (size_t i = 0; i < text.size(); i += 17) text[i] = '\\n';
std::cout << text << std::flush;
std::cerr << "last";
::kill(::getpid(), {name});
for (;;) ::pause();
""", "-n", "1")
            code = session.finish()
            check(code == 5, f"{name}: exit code {code}")
            expected = "".join("\n" if i % 17 == 0 else "x" for i in range(size))
            for stream, text in (("stdout", expected), ("stderr", "last")):
                shown = "".join(e["text"] for e in session.of("output") if e["stream"] == stream)
                check(shown == text, f"{name}: {len(shown)} of {len(text)} bytes of {stream} are right or there")
            check(all(e["cell"] == 1 for e in session.of("output")), "of another cell")


def test_output_of_a_rank_that_is_killed_while_it_prints():
    """What arrives is what was written: numbered lines without a gap, up to what the program had counted."""
    for seed in range(3):
        session = Session("""// %% prints
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>
int count = ::open((std::string(std::getenv("LOCKSTEP_SESSION_DIR")) + "/../../count").c_str(), O_RDWR | O_CREAT, 0600);
(void)!::ftruncate(count, 4096);
auto* written = static_cast<volatile long*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, count, 0));
char line[16];
for (long i = 0; ; ++i) {
  std::snprintf(line, sizeof line, "%09ld\\n", i % 1000000000);
  if (::write(1, line, 10) == 10) *written = i + 1;
}
""", "-n", "1", runtime=True)
        check(session.until(lambda e: e["event"] == "output"), "nothing was printed")
        for _ in range(seed * 40):
            session.until(lambda e: e["event"] == "output")
        (victim, _), *_ = sorted(session.workers())
        os.kill(victim, signal.SIGKILL)
        check(session.finish() == 5, "exit code")
        with open(session.folder.name + "/count", "rb") as file:
            written = int.from_bytes(file.read(8), "little")
        text = "".join(e["text"] for e in session.of("output"))
        lines = text.split("\n")[:-1]
        check(len(text) % 10 == 0, "a torn line")
        # The last write may have happened without having been counted.
        check(len(lines) in (written, written + 1), f"{len(lines)} of {written} lines arrived")
        check(all(int(line) == i for i, line in enumerate(lines)), "lines are missing or out of order")


def test_storm():
    size = 100 * 1024 * 1024
    session = Session("""// %% storm
std::string line(1023, 'x');
line += '\\n';
for (int i = 0; i < 102400; ++i) std::cout << line;
""", "-n", "1")
    total = largest = 0
    session.until(lambda e: e["event"] == "session")
    for raw in session.process.stdout:
        event = json.loads(raw)
        if event["event"] == "output":
            total += len(event["text"])
        status = pathlib.Path(f"/proc/{session.process.pid}/status")
        if total % (8 << 20) < 65536 and status.exists():
            for line in status.read_text().splitlines():
                if line.startswith("VmRSS"):
                    largest = max(largest, int(line.split()[1]))
    check(session.process.wait(timeout=LIMIT) == 0, "exit code")
    check(total == size, f"{total} of {size} bytes arrived")
    check(0 < largest < 100_000, f"the shell used {largest} kB")
    print(f"  the shell used {largest} kB")


def run_tests(names):
    """Runs the functions test_… among `names`, or those of the command line; the exit code."""
    tests = {name: test for name, test in names.items() if name.startswith("test_") and (len(sys.argv) < 3 or name in sys.argv[2:])}
    failed = 0
    for name, test in tests.items():
        print(name, flush=True)
        try:
            test()
        except AssertionError as error:
            failed += 1
            print(f"  FAILED: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_tests(globals()))
