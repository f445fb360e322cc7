"""Measures the program `lockstep` from outside: its start, and what memory its processes have while nothing runs.

A runtime directory of its own keeps other sessions out of the measurement."""
import contextlib
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from .processes import output_of, started
from .records import parse


class Lockstep:
    def __init__(self, build):
        self.bin = Path(build).resolve() / "bin"
        self.program = self.bin / "lockstep"
        self.count = 0
        self.runtime = tempfile.TemporaryDirectory(prefix="lockstep-bench-")

    def close(self):
        output_of([self.program, "sessions", "clean"], 30, self.environment())
        self.runtime.cleanup()

    def environment(self, **more):
        return dict(os.environ, XDG_RUNTIME_DIR=self.runtime.name, **more)

    def bench(self, measurement, ranks, cells, limit_s=300, options=()):
        command = [self.bin / "lockstep-bench-session", measurement, "--ranks", ranks, "--cells", cells, *options]
        return parse(output_of(command, limit_s, self.environment()) or "")

    def scale(self, ranks, hosts):
        command = [self.bin / "lockstep-bench-scale", "--ranks", ranks, "--hosts", hosts]
        return parse(output_of(command, 600, self.environment()) or "")

    def start(self, ranks):
        """Seconds from the command to the first output of its first cell, which needs the process group."""
        first, whole = self.run_once(ranks, self.environment())
        record = {"subject": "lockstep", "ranks": ranks, "unit": "s"}
        return [dict(record, what="start", values=[first]), dict(record, what="start.whole", values=[whole])]

    def run_once(self, ranks, env):
        self.count += 1  # makes the text a new one
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as script:
            script.write(f"// %%\nauto t = torch::ones(1);\ndist::all_reduce(t);\n"
                         f"std::cout << \"sum \" << t.item<int>() + {self.count} << std::endl;\n")
            script.flush()
            begin, text, first = time.perf_counter(), "", None
            with started([self.program, "run", script.name, "-n", ranks], env, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True) as process:
                for line in process.stdout:
                    text += line
                    if first is None and f"sum {ranks + self.count}" in line:
                        first = time.perf_counter() - begin
                code = process.wait(60)
                whole = time.perf_counter() - begin
        if code != 0 or first is None:
            raise RuntimeError(f"lockstep run ended with {code}:\n{text}")
        return first, whole

    def workshop(self, sessions, ranks):
        """Many sessions on this machine that start at once: seconds until all have had the value of a first cell, and the
        memory of all their processes then and once their compilers have practised, pages that several of them share
        counted once."""
        record = {"subject": "lockstep", "ranks": ranks}
        with contextlib.ExitStack() as all_of_them:
            begin, running = time.perf_counter(), []
            for _ in range(sessions):
                process = all_of_them.enter_context(
                    started([self.program, "-n", ranks], self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True))
                running.append(process)
                process.stdin.write("torch::ones(3).sum().item<int>() + 39\n")
                process.stdin.flush()
            for process in running:
                if not any("= 42" in line for line in process.stdout):
                    raise RuntimeError("a session ended early")
            seconds = time.perf_counter() - begin
            memory = self.memory_of_all()
            self.wait_until_idle()
            memory_later = self.memory_of_all()
            for process in running:
                process.stdin.close()
                process.wait(60)
        return [dict(record, what=f"{sessions} sessions.ready", unit="s", values=[seconds]),
                dict(record, what=f"{sessions} sessions.memory", unit="MB", values=[memory]),
                dict(record, what=f"{sessions} sessions.memory_practised", unit="MB", values=[memory_later])]

    def memory_of_all(self):
        """MB of all processes of this measurement."""
        memory = 0
        for proc, _ in self.processes():
            with contextlib.suppress(OSError):  # a copy of a compiler that has ended
                memory += memory_of(proc)["Pss"]
        return memory

    def wait_until_idle(self, quiet_s=5, limit_s=300):
        """Waits until the processes of this measurement have taken next to no processor time for a while."""
        begin = since = time.monotonic()
        used = self.processor_time()
        while time.monotonic() - since < quiet_s and time.monotonic() - begin < limit_s:
            time.sleep(1)
            now = self.processor_time()
            if now - used > 0.2:
                since = time.monotonic()
            used = now

    def processor_time(self):
        """Seconds, of the processes that run and of their children that have ended."""
        ticks = 0
        for proc, _ in self.processes():
            with contextlib.suppress(OSError):
                ticks += sum(map(int, Path(f"/proc/{proc}/stat").read_text().rpartition(")")[2].split()[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def processes(self):
        """(process, program) of those of this measurement that run."""
        for proc in Path("/proc").glob("[0-9]*"):
            try:
                program = Path(os.readlink(proc / "exe"))
                if program.parent == self.bin and f"XDG_RUNTIME_DIR={self.runtime.name}".encode() in (proc / "environ").read_bytes():
                    yield proc.name, program.name
            except (OSError, ProcessLookupError):
                continue  # gone, or not ours

    def memory(self, ranks):
        """Resident memory of each kind of process, of a session that has run one cell and waits; and the part that
        no other process shares."""
        with started([self.program, "-n", ranks], self.environment(), stdin=subprocess.PIPE,
                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            process.stdin.write("torch::ones(3).sum().item<int>() + 39\n")
            process.stdin.flush()
            text = ""
            for line in process.stdout:
                text += line
                if "42" in line:
                    break
            else:
                raise RuntimeError(f"the session ended early:\n{text}")
            time.sleep(1)  # lets the next compile's child be forked, as it is between two cells
            found = self.family(process.pid)
            process.stdin.close()
            process.wait(30)
        records = []
        for role, pairs in found.items():
            for index, kind in ((0, "resident"), (1, "own")):
                records.append({"subject": "lockstep", "what": f"memory.{role}.{kind}", "ranks": ranks, "unit": "MB",
                                "values": [pair[index] for pair in pairs]})
        return records

    def family(self, shell):
        """{role: [(resident MB, MB that no other process shares)]} of the session's processes. Of compilers that
        share nearly all of their memory, the largest stands for all."""
        found = {"shell": [resident_and_own(shell)]}
        for proc, program in self.processes():
            try:
                arguments = Path(f"/proc/{proc}/cmdline").read_bytes()
                worker = "store" if b"--store" in arguments else "starter" if b"--ranks" in arguments else "worker"
                role = {"lockstep-worker": worker, "lockstep-compiler": "compiler"}.get(program)
                if role:
                    found.setdefault(role, []).append(resident_and_own(proc))
            except (OSError, ProcessLookupError):
                continue  # it is gone
        if "compiler" in found:
            found["compiler"] = [max(found["compiler"])]
        return found


def memory_of(pid):
    """MB, by name."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return {name: int(value) / 1024 for name, value in re.findall(r"^(\w+): +(\d+) kB", text, re.M)}


def resident_and_own(pid):
    memory = memory_of(pid)
    return memory["Rss"], memory["Private_Clean"] + memory["Private_Dirty"]
