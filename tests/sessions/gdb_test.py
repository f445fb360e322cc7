"""gdb on a worker: breaks in a %%debug cell by file and line, and prints its locals.

Usage: gdb_test.py LOCKSTEP
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from waiting import wait_until

SCRIPT = """\
// %% who and where
#include <fstream>
if (rank == 0) std::ofstream("pid.part") << getpid() << std::endl;
if (rank == 0) std::filesystem::rename("pid.part", "pid");
while (!std::filesystem::exists("go")) std::this_thread::sleep_for(std::chrono::milliseconds(20));

// %% to be stopped in
%%debug
int sum_of(const std::vector<int>& values) {
  int sum = 0;
  for (int value : values) sum += value;
  return sum;
}
sum_of({20, 22})
"""


def main():
    lockstep = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="lockstep-gdb-") as folder:
        folder = Path(folder)
        (folder / "stopped.cpp").write_text(SCRIPT)
        session = subprocess.Popen([lockstep, "run", "stopped.cpp", "-n", "2"], cwd=folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            wait_until((folder / "pid").exists)
            commands = ["set pagination off", "set breakpoint pending on", "break cell_2.cpp:5",
                        f"shell touch {folder}/go", "continue", "info locals", "up", "info source", "delete", "detach"]
            gdb = subprocess.run(["gdb", "-q", "-nx", "-batch", "-p", (folder / "pid").read_text().strip()]
                                 + [part for command in commands for part in ("-ex", command)],
                                 text=True, capture_output=True, timeout=600, env=dict(os.environ, DEBUGINFOD_URLS=""))
            output = session.communicate(timeout=600)[0]
        finally:
            session.kill()
        said = gdb.stdout + gdb.stderr
        wanted = [("the break", "cell_2.cpp:5"), ("the function", "sum_of"), ("a local", "sum = 42")]
        missing = [what for what, text in wanted if text not in said]
        if "0-1 = 42" not in output:
            missing.append("the session's value")
        if missing:
            print(f"missing: {', '.join(missing)}\n--- gdb\n{said}\n--- session\n{output}")
            return 1
    return 0


sys.exit(main())
