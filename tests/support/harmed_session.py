"""A session that is harmed, and what must be true of it afterwards: for tools/chaos and tests/sessions/pairs_test.py."""
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from processes import descendants, wait_gone, with_variable
from typed_session import TypedSession

RANKS = range(3)
PRESS_AGAIN_S = 10  # longer than ranks take to come back from an interrupt, also on a busy machine

# Numbered lines. The count is in a file, so that it is known also of a rank that is killed: the last line may be out and not counted.
PRELUDE = """#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
void print_lines(const char* folder, int cell, long lines) {
  int count = ::open((std::string(folder) + "/" + std::to_string(rank) + "." + std::to_string(cell)).c_str(), O_RDWR | O_CREAT, 0600);
  char line[64];
  for (long i = 0; i < lines;) {
    int size = std::snprintf(line, sizeof line, "%d:%d:%ld\\n", rank, cell, i);
    if (::write(1, line, size) != size) break;
    ++i;
    (void)!::pwrite(count, &i, sizeof i, 0);
  }
  ::close(count);
}
// Some more every few milliseconds, until there is the file `end`.
void print_lines_until(const char* folder, int cell, const char* end) {
  int count = ::open((std::string(folder) + "/" + std::to_string(rank) + "." + std::to_string(cell)).c_str(), O_RDWR | O_CREAT, 0600);
  char line[64];
  for (long i = 0, over = 0; !over;) {
    over = ::access(end, F_OK) == 0;
    for (int part = 0; part < 64; ++part) {
      int size = std::snprintf(line, sizeof line, "%d:%d:%ld\\n", rank, cell, i);
      if (::write(1, line, size) != size) over = 1;
      ++i;
      (void)!::pwrite(count, &i, sizeof i, 0);
    }
    if (!over) ::usleep(3000);
  }
  ::close(count);
}
"""

# What look() asks: one cell, whose text is always the same, so that it is compiled once.
KEPT = 'std::printf("kept %d %lu\\n", rank, kept);'
SUM = ' { auto t = torch::full({1}, rank + 1); dist::all_reduce(t); std::printf("sum %d %ld\\n", rank, t.item<long>()); }'


class Cpp:
    """What is typed, where ranks are C++."""
    prelude, file, include = PRELUDE, "prelude.h", '#include "{}"'
    begin, effect, kept, sum = "unsigned long kept = 7;", "kept = kept * {} + {};", KEPT, SUM
    by_rank = "{{ unsigned long values[] = {{{}ul, {}ul, {}ul}}; kept = values[rank]; }}"
    printing = 'print_lines("{}", {}, {});'
    endless = ("for (volatile long i = 0;; i = i + 1) {}", "::sleep(1000);", "std::this_thread::sleep_for(std::chrono::hours(1));",
               "for (;;) torch::ones({64, 64}).mm(torch::ones({64, 64}));")
    busy = "for (volatile long i = 0; i < 300'000'000; i = i + 1) {}"


class Python:
    """The same, where they are Python."""
    prelude = """import os, time
def print_lines(folder, cell, lines):
    count = os.open(f"{folder}/{rank}.{cell}", os.O_RDWR | os.O_CREAT, 0o600)
    for i in range(lines):
        line = f"{rank}:{cell}:{i}\\n".encode()
        if os.write(1, line) != len(line):
            break
        os.pwrite(count, (i + 1).to_bytes(8, "little"), 0)
    os.close(count)
"""
    file, include = "prelude.py", 'exec(open("{}").read())'
    begin, effect, by_rank = "kept = 7", "kept = (kept * {} + {}) % 2**64", "kept = ({}, {}, {})[rank]"
    kept = 'print(f"kept {rank} {kept}")'
    sum = '; total = torch.full((1,), rank + 1); dist.all_reduce(total); print(f"sum {rank} {total.item()}")'
    printing = 'print_lines("{}", {}, {})'
    endless = ("for i in iter(int, 1): pass", "time.sleep(1000)", "for i in iter(int, 1): torch.ones(64, 64) @ torch.ones(64, 64)")
    busy = "for i in range(10_000_000): pass"


class Broken(AssertionError):
    """What had to be true is not."""


def check(condition, message):
    if not condition:
        raise Broken(message)


class HarmedSession:
    """A session, and what must be true of it."""

    def __init__(self, program, folder, limit_s, options=()):
        self.program, self.folder, self.limit_s, self.options = program, folder, limit_s, options
        self.language, self.is_detachable = Cpp, False
        self.disk, self.counts = folder / "disk", folder / "counts"
        self.environment = {"LOCKSTEP_JOURNAL": "size=4,all=16", "XDG_STATE_HOME": str(self.disk / "state"), "XDG_RUNTIME_DIR": str(self.disk / "run"),
                            "TMPDIR": str(self.disk / "tmp"),
                            # What ranks print here differs, and nobody asks whether it is folded: the time of tools/test would be waited in vain.
                            "LOCKSTEP_FOLD_TIME": "200"}
        for path in (self.disk / "state", self.disk / "run", self.disk / "tmp", self.counts):
            os.makedirs(path, mode=0o700, exist_ok=True)
        self.session = None
        self.cell = 0
        self.slowest_interrupt = 0.0

    # ---- A session: its begin and its end.

    def begin(self):
        words = ["--detachable=10m"] if self.is_detachable else []
        self.session = TypedSession([self.program, "-n", str(len(RANKS)), *words, *self.options], self.environment, self.limit_s)
        self.pid, self.id = self.session.pid, None
        self.live = set(RANKS)
        if self.is_detachable:  # what was started is its terminal
            self.session.mark()
            listed = subprocess.run([self.program, "sessions", "list", "--json"], env={**os.environ, **self.environment}, capture_output=True, check=True)
            (self.id,) = [each["id"] for each in json.loads(listed.stdout) if each["path"].startswith(str(self.folder))]  # others may run besides
            self.pid = int(self.id.partition("-")[0])
        self.define()

    def define(self):
        """Gives fresh ranks their names."""
        prelude = self.folder / self.language.file
        prelude.write_text(self.language.prelude)
        self.cells(self.language.include.format(prelude), self.language.begin)
        self.kept = {rank: {7} for rank in RANKS}
        self.store = True

    def check_gone(self):
        started = with_variable(f"TMPDIR={self.environment['TMPDIR']}")
        left = wait_gone({key: name for key, name in started.items() if "--template" not in name}, self.limit_s)
        check(not left, f"processes are left: {left}")

    def after_end(self, killed=False):
        """Checks what is left of a session that has ended. The folder of a shell or a relay that was killed is left, for `lockstep sessions`."""
        self.check_gone()
        shown = subprocess.run([self.program, "sessions", "show", f"{self.pid}-", "--json"], env={**os.environ, **self.environment}, capture_output=True)
        check(shown.returncode == 0, f"its journal can't be read: {shown.stderr.decode()}")
        typed = [event["text"] for event in map(json.loads, shown.stdout.splitlines()) if event["event"] == "input"]
        check(self.language.begin in typed, f"its journal does not have what was typed: {typed}")
        os.close(self.session.fd)
        self.session = None
        if killed:
            subprocess.run([self.program, "sessions", "clean"], env={**os.environ, **self.environment}, capture_output=True, check=True)
        files = [str(path) for name in ("XDG_RUNTIME_DIR", "TMPDIR") for path in Path(self.environment[name]).rglob("*") if not path.is_dir()]
        check(not files, f"files are left: {files}")

    def leave(self, killed=False):
        if self.session:
            self.look()
            self.session.send("\x04")
            code = self.session.wait_end()
            check(code == 0, f"the session ended with exit code {code}")
            self.after_end(killed)

    def resume(self):
        """Comes back from another terminal."""
        marks = self.session.marks
        os.close(self.session.fd)
        self.session = TypedSession([self.program, "--resume", self.id], self.environment, self.limit_s)
        self.session.marks = marks  # those of before may be drawn again

    # ---- What is typed.

    def cells(self, *lines):
        """Types lines, waits until they are done, and returns what was written."""
        for line in lines:
            self.session.type(line)
        return self.session.settle(self.live)

    def effect(self, random):
        """The text of a cell that changes `kept`, which then has its old or its new value."""
        factor, term = random.randrange(3, 99, 2), random.randrange(1000)
        for rank in self.live:
            self.kept[rank] = self.kept[rank] | {(value * factor + term) % 2**64 for value in self.kept[rank]}
        return self.language.effect.format(factor, term)

    def certain_effect(self, random):
        before = {rank: set(values) for rank, values in self.kept.items()}
        text = self.effect(random)
        for rank in self.live:
            self.kept[rank] = self.kept[rank] - before[rank] or self.kept[rank]
        return text

    def printing(self, lines):
        self.cell += 1
        return self.language.printing.format(self.counts, self.cell, lines)

    def printing_until(self, file):
        self.cell += 1
        return f'print_lines_until("{self.counts}", {self.cell}, "{file}");'

    # ---- What must be true.

    def check_lines(self, text, lines, ranks, complete=True, may_drop=False):
        """Compares the lines of the last printing() that are in `text` with the count of each rank."""
        text = re.sub(r"[^\n]*\n■ interrupted; output", "", text)  # what is cut off is cut in the middle of a line
        seen = {rank: [] for rank in RANKS}
        for rank, cell, number in re.findall(r"│ (\d+):(\d+):(\d+)$", text, re.MULTILINE):
            if int(cell) == self.cell:
                seen[int(rank)].append(int(number))
        for rank in ranks:
            count = self.counts / f"{rank}.{self.cell}"
            written = int.from_bytes(count.read_bytes()[:8], "little") if count.exists() else 0
            if complete and lines is not None:
                check(written == lines, f"rank {rank} has written {written} of {lines} lines: {text[-2000:]}")
            if may_drop and "of output not shown" in text:
                check(seen[rank] == sorted(set(seen[rank])), f"rank {rank}: lines are doubled or out of order")
            else:
                check(seen[rank] == list(range(len(seen[rank]))) and len(seen[rank]) in (written, written + 1),
                      f"rank {rank} has written {written} lines, and {len(seen[rank])} are shown: {seen[rank][-5:]}, {text[-2000:]}")

    def look(self):
        """Checks what must be true after each round."""
        if not self.live:
            return
        all_live = self.live == set(RANKS) and self.store
        text = self.cells(self.language.kept + (self.language.sum if all_live else ""))
        found = {int(rank): int(value) for rank, value in re.findall(r"│ kept (\d+) (\d+)$", text, re.MULTILINE)}
        check(set(found) == self.live, f"ranks {self.live} must answer, ranks {set(found)} did: {text}")
        for rank, value in found.items():
            check(value in self.kept[rank], f"rank {rank} has {value}, not one of {self.kept[rank]}: {text}")
            self.kept[rank] = {value}
        if all_live:
            check(len(re.findall(r"│ sum \d+ 6$", text, re.MULTILINE)) == len(RANKS), f"a collective failed: {text}")

    # ---- Its processes.

    def processes(self, part=""):
        return {key: name for key, name in descendants(self.pid).items() if part in name}

    def compilers(self):
        return [pid for pid, _ in self.processes("lockstep-compiler")]

    def processes_of(self, ranks):
        """Their pids, from what the session says."""
        rows = dict(re.findall(r"^(\d+) +\w+ +(\d+) ", self.cells("%dist_status"), re.MULTILINE))
        return [int(rows[str(rank)]) for rank in ranks]

    def process_of(self, rank):
        return self.processes_of([rank])[0]

    def some_rank(self, random):
        return random.choice(sorted(self.live))

    def died(self, rank):
        self.live.discard(rank)

    def restarted(self, ranks):
        self.live |= set(ranks)

    def interrupt(self):
        begin = time.monotonic()
        os.kill(self.pid, signal.SIGINT)
        text = self.session.settle(self.live)
        self.slowest_interrupt = max(self.slowest_interrupt, time.monotonic() - begin)
        return text

    def interrupt_endless(self):
        """Ctrl-C for a cell that does not end by itself; returns what was written. A press that comes before the cell runs stops
        nothing, or takes the typed line away, and then a second one follows. There is no third one: it would end ranks."""
        for _ in range(2):
            begin = time.monotonic()
            os.kill(self.pid, signal.SIGINT)
            if self.session.shows("interrupted", PRESS_AGAIN_S):
                self.slowest_interrupt = max(self.slowest_interrupt, time.monotonic() - begin)
                break
        return self.session.settle(self.live)


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it was a copy of the compiler for one cell
