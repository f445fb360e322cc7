#!/usr/bin/env python3
"""Runs a session script and compares what people see with the .expected file beside it.

    run_transcript.py LOCKSTEP SCRIPT [--update]

Comments at the top of the script say how: `// run: -n 3 --keep-going` and `// exit: 1`. Times, pids, versions and
addresses differ between runs: they are replaced by T, PID, VERSION and ADDR before the texts are compared
(tests/support/transcript.py).
"""
import difflib
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from transcript import header, same_in_all_runs  # noqa: E402


def main():
    lockstep, script = sys.argv[1], pathlib.Path(sys.argv[2])
    text = script.read_text()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("COLUMNS", "CLICOLOR"))}
    environment.update(NO_COLOR="1", LC_ALL="C.UTF-8")
    run = subprocess.run([lockstep, "run", str(script)] + header(text, "run", "-n 2").split(), env=environment,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=600)
    seen = same_in_all_runs(run.stdout.decode("utf-8", "replace"))
    expected_file = script.with_suffix(".expected")
    if "--update" in sys.argv:
        expected_file.write_text(seen)
    expected = expected_file.read_text()
    wanted_code = int(header(text, "exit", "0"))
    if seen != expected:
        sys.stdout.writelines(difflib.unified_diff(expected.splitlines(True), seen.splitlines(True), str(expected_file), "this run"))
    if run.returncode != wanted_code:
        print(f"exit code {run.returncode}, and {wanted_code} was expected")
    return 0 if seen == expected and run.returncode == wanted_code else 1


if __name__ == "__main__":
    sys.exit(main())
