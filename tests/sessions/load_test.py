#!/usr/bin/env python3
"""Much output, and many sessions one after the other. Usage: load_test.py LOCKSTEP [TEST...]"""
import collections
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

from faults_test import LOCKSTEP, Session, check, check_gone, run_tests
from processes import with_variable

RANKS, LINES, SIZE = 4, 25_000, 1_000  # 25 MB on each of the two streams of a rank

PRINTS = f"""// %%
#include <unistd.h>
std::string filling({SIZE}, '.');
for (int fd = 1; fd <= 2; ++fd)
  for (int i = 0; i < {LINES}; ++i) {{
    const std::string line = (std::to_string(rank) + ":" + std::to_string(fd) + ":" + std::to_string(i) + filling).substr(0, {SIZE - 1}) + "\\n";
    if (::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) throw std::runtime_error("the line was not written");
  }}
"""


def test_all_of_much_output_is_shown():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        try:
            session = Session(PRINTS, "-n", str(RANKS))
            shown = collections.defaultdict(hashlib.sha256)

            def take(event):
                if event["event"] == "output":
                    for rank in event["ranks"]:
                        shown[rank, event["stream"]].update(event["text"].encode())
                session.events.clear()
            session.until(take)
            check(session.process.wait() == 0, "the session failed")
        finally:
            del os.environ["XDG_STATE_HOME"]
        for rank in range(RANKS):
            for fd, stream in enumerate(("stdout", "stderr"), 1):
                written = "".join(f"{rank}:{fd}:{i}".ljust(SIZE - 1, ".") + "\n" for i in range(LINES))
                check(shown[rank, stream].digest() == hashlib.sha256(written.encode()).digest(), f"{stream} of rank {rank} is not what it wrote")
        kept = sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*.jsonl"))
        check(32 << 20 < kept < 65 << 20, f"the journal has {kept} bytes")


def test_sessions_in_a_row_leave_nothing():
    """Those that end well, with an error, by a signal, and with a rank that died."""
    cells = ("rank", 'throw std::runtime_error("as expected");', "#include <csignal>\n::kill(::getppid(), SIGTERM); for (;;) {}", "std::abort();")
    with tempfile.TemporaryDirectory(prefix="ls-") as folder:
        own = {name: f"{folder}/{name}" for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR")}
        for path in own.values():
            os.mkdir(path, mode=0o700)
        for number in range(12):
            script = pathlib.Path(folder, "cells.cpp")
            script.write_text(f"auto ones = torch::ones({{2}}); dist::all_reduce(ones);\n// %%\n{cells[number % len(cells)]}\n")
            process = subprocess.Popen([LOCKSTEP, "run", script, "-n", "2"], env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True)
            said = process.communicate()[0]
            check(process.returncode == (0, 1, 130, 5)[number % len(cells)], f"{number}: {process.returncode}, {said}")
        started = with_variable(f"TMPDIR={own['TMPDIR']}")
        check_gone({key: name for key, name in started.items() if "--template" not in name})
        files = [path for name in ("XDG_RUNTIME_DIR", "TMPDIR") for path in pathlib.Path(own[name]).rglob("*") if not path.is_dir()]
        check(not files, f"files are left: {files}")


if __name__ == "__main__":
    sys.exit(run_tests(globals()))
