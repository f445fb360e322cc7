#!/usr/bin/env python3
"""An installation by root that another user uses: LibTorch and the precompiled header are in the folder that all users
read. Usage: shared_home_test.py BUILD_DIR SESSION. Skipped (77) unless root runs it."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, SESSION = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]
OTHER = 65534  # nobody


def as_other():
    os.setgroups([])
    os.setgid(OTHER)
    os.setuid(OTHER)


class SharedHome(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-shared-"))
        cls.folder.chmod(0o755)
        cls.prefix = cls.folder / "prefix"
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.prefix], check=True, stdout=subprocess.DEVNULL)
        # Where the build found LibTorch is no place for others, as root's cache is none.
        cls.libtorch = (cls.prefix / "lib/lockstep/libtorch.folder").read_text().strip()
        cls.log = subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.prefix, "--component", "Home"],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env={k: v for k, v in os.environ.items() if not k.startswith("LOCKSTEP_")} |
                                 {"LOCKSTEP_LIBTORCH": cls.libtorch})
        (cls.prefix / "lib/lockstep/libtorch.folder").write_text("/nowhere/of-root-alone\n")
        cls.home = cls.prefix / "lib/lockstep/home"
        shutil.copy(SESSION, cls.folder / "session.cpp")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def header(self):
        """Which precompiled header the compiler of the other user takes: its folder, and whether it is there."""
        code, out, _ = self.lockstep("--version", program="lockstep-compiler")
        self.assertEqual(code, 0, out)
        found = json.loads(out)
        return pathlib.Path(found["header"]), found["header_state"]

    def lockstep(self, *arguments, program="lockstep", **variables):
        with tempfile.TemporaryDirectory(dir=self.folder) as of_user:
            os.chown(of_user, OTHER, OTHER)
            environment = {"HOME": of_user, "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "NO_COLOR": "1", **variables}
            run = subprocess.run([self.prefix / "bin" / program, *map(str, arguments)], cwd="/", env=environment,
                                 preexec_fn=as_other, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, timeout=600)
            return run.returncode, run.stdout, sorted(str(p) for p in pathlib.Path(of_user).rglob("*.pch"))

    def test_another_user_runs_cells_at_once(self):
        self.assertEqual(self.log.returncode, 0, self.log.stdout)
        before = sorted(self.home.rglob("*"))
        code, out, headers = self.lockstep("run", self.folder / "session.cpp", "-n", "2")
        self.assertEqual(code, 0, out)
        self.assertIn(f"LibTorch is {self.home}/libtorch/", out)
        self.assertNotIn("building the precompiled header", out)
        self.assertEqual(headers, [])
        self.assertEqual(sorted(self.home.rglob("*")), before)
        code, out, _ = self.lockstep("doctor")
        self.assertEqual(code, 0, out)

    def test_a_folder_that_others_write_is_not_used(self):
        pch = self.home / "pch"
        folder, state = self.header()
        self.assertEqual((folder.parent, state), (pch, "ready"))
        pch.chmod(0o777)
        try:
            folder, state = self.header()
        finally:
            pch.chmod(0o755)
        self.assertNotEqual(folder.parent, pch)
        self.assertEqual(state, "missing")

    def test_without_it_the_message_says_what_to_run(self):
        code, out, _ = self.lockstep("run", self.folder / "session.cpp", LOCKSTEP_HOME="/nonexistent")
        self.assertEqual(code, 3, out)
        self.assertIn("/nonexistent/libtorch/", out)
        self.assertIn("lockstep-setup", out)


if __name__ == "__main__":
    if os.getuid() != 0:
        print("only root can become another user")
        sys.exit(77)
    unittest.main()
