#!/usr/bin/env python3
"""`lockstep verify`: what it prints, its JSON, and its exit codes. Files are those of tests/inspectors/files."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP = os.path.abspath(sys.argv.pop(1))
FILES = pathlib.Path(__file__).resolve().parent.parent / "inspectors" / "files"


def verify(*arguments, folder=FILES, environment=None):
    run = subprocess.run([LOCKSTEP, "verify", *map(str, arguments)], cwd=folder, stdin=subprocess.DEVNULL, timeout=120,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "NO_COLOR": "1", "LC_ALL": "C.UTF-8", **(environment or {})})
    return run.returncode, run.stdout, run.stderr


class VerifySaved(unittest.TestCase):
    def test_equal_files(self):
        code, out, err = verify("formats.safetensors", "formats-state.pt")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("equal in formats.safetensors and formats-state.pt: 7 tensors", out)

    def test_a_difference_names_the_files_and_no_rank(self):
        code, out, _ = verify("sharded-2", "sharded-3", "sharded-2-other")
        self.assertEqual(code, 1)
        self.assertIn("sharded-2-other differs from sharded-2 and sharded-3", out)
        self.assertNotIn("rank", out)

    def test_patterns_count_as_people_do(self):
        with tempfile.TemporaryDirectory() as folder:
            for number in (10, 2, 1):
                shutil.copy(FILES / f"state-dict-{0 if number != 2 else 1}.pt", f"{folder}/rank{number}.pt")
            code, out, _ = verify("rank*.pt", "--json", folder=folder)
            events = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(code, 1)
        self.assertEqual(events[0]["files"], ["rank1.pt", "rank2.pt", "rank10.pt"])
        finding = events[1]
        self.assertEqual((finding["event"], finding["files"], finding["reference_files"]),
                         ("finding", ["rank2.pt"], ["rank1.pt", "rank10.pt"]))
        self.assertEqual(finding["tensors"][0]["name"], "0.weight")
        self.assertEqual(events[-1], {"event": "end", "exit_code": 1})

    def test_tolerances(self):
        self.assertEqual(verify("state-dict-0.pt", "state-dict-1.pt")[0], 1)
        self.assertEqual(verify("state-dict-0.pt", "state-dict-1.pt", "--atol", "0.6")[0], 0)
        self.assertEqual(verify("state-dict-0.pt", "state-dict-1.pt", "--atol", "-1")[0], 2)

    def test_what_is_not_there_or_no_replica(self):
        code, _, err = verify("formats-stat.pt", "module.pt")
        self.assertEqual(code, 2)
        self.assertIn("did you mean formats-state.pt?", err)
        code, _, err = verify("no-*.pt", "module.pt")
        self.assertEqual(code, 2)
        self.assertIn("no file has a name like this", err)
        code, _, err = verify("module.pt")
        self.assertEqual(code, 2)
        self.assertIn("two files or more", err)
        code, out, err = verify("old-format.pt", "module.pt")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("before 1.6", err)

    def test_a_path_with_any_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("one 'file'.pt", "ein[s]\n.pt"):
                shutil.copy(FILES / "module.pt", os.path.join(folder, name))
            code, out, err = verify("one 'file'.pt", "ein[s]\n.pt", folder=folder)
        self.assertEqual((code, err), (0, ""), out)

    def test_without_libtorch(self):
        code, _, err = verify("module.pt", "module.pt", environment={"LOCKSTEP_LIBTORCH": "/nonexistent"})
        self.assertEqual(code, 3)
        self.assertIn("no LibTorch at /nonexistent", err)


if __name__ == "__main__":
    unittest.main()
