"""A session of many ranks, which are stubs without LibTorch behind 16 relays on this machine (benchmarks/session/scale): what it
shows fits a screen. And the benchmark of such sessions itself, with few ranks. SCALE_RANKS=1024 takes 5 GB of memory."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from hosts import BUILD, TREE

sys.path.insert(0, str(TREE / "tests" / "support"))
from typed_session import TypedSession  # noqa: E402

LIMIT_S = 300  # ends what hangs; judges nothing
RANKS, HOSTS = int(os.environ.get("SCALE_RANKS", 256)), 16
SCREEN = 24  # lines
SSH = """#!/bin/sh
# ssh [OPTION…] HOST COMMAND…, on this machine.
while [ "${1#-}" != "$1" ]; do [ "$1" != -o ] || shift; shift; done
shift
exec sh -c "$*"
"""


class Scale(unittest.TestCase):
    def test_the_benchmark(self):
        """It ends with an error where a rank has not answered, or a hang is not reported once."""
        output = subprocess.run([BUILD / "bin" / "lockstep-bench-scale", "--ranks", "16", "--hosts", "4", "--rounds", "1"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
        self.assertEqual(output.returncode, 0, output.stdout)
        for each in ("start", "value", "call", "object_2_mb", "status", "output_1_mb", "hang"):
            self.assertIn(f"scale.4_hosts.{each}.", output.stdout)

    def test_what_fits_a_screen(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="ls-")))
        programs, run = folder / "bin", folder / "run"
        programs.mkdir()
        run.mkdir(mode=0o700)
        for name, program in (("lockstep", "lockstep"), ("lockstep-compiler", "lockstep-compiler"),
                              ("lockstep-worker", "lockstep-stub-worker")):
            (programs / name).symlink_to(BUILD / "bin" / program)
        (programs / "ssh").write_text(SSH)
        (programs / "ssh").chmod(0o755)
        torch = re.search(r"^FIND_PACKAGE_MESSAGE_DETAILS_LibTorch:.*\[v([0-9.]+)", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "LOCKSTEP_BIN": str(programs), "XDG_RUNTIME_DIR": str(run),
                       "LOCKSTEP_JOURNAL": "off", "STUB_LIBTORCH": torch, "LOCKSTEP_FOLD_TIME": "60000"}
        hosts = ",".join(f"h{number}" for number in range(HOSTS))
        command = [str(programs / "lockstep"), "-n", str(RANKS), "--hosts", hosts]
        with TypedSession(command, environment, LIMIT_S) as session:
            session.settle()
            session.type('const char* says = "stub: output 640";')
            said = session.settle()
            self.assertEqual(said.count(f"0-{RANKS - 1} │ "), 10, said)
            self.assert_fits(said)
            session.type('const char* waits = "stub: hang";')
            session.wait_for_text("✗ hang: ")
            session.type("%stack")
            session.wait_for_text("    no cell runs\n")
            session.type("%hang")
            session.type("%abort")
            said = session.settle()
            # Each rank that waits has a line of its own, which does not fit.
            said = "".join(line for line in said.splitlines(keepends=True) if not line.endswith("which does not come\n"))
            self.assertRegex(said, rf"✗ hang: ranks .* wait in barrier #1 .*, and rank {RANKS - 1} has finished")
            self.assertIn(f"\nranks 0-{RANKS - 2}\n    cell 2, line 1\nrank {RANKS - 1}\n    no cell runs\n", said)
            self.assertIn(f"ranks 0-{RANKS - 2} were freed\n", said)
            self.assert_fits(said)

    def assert_fits(self, said):
        self.assertLess(len(said.splitlines()), SCREEN, said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
