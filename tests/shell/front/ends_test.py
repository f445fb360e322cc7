"""How programs end: by signals, readers that go away, limits, and places in which they can't work; with the fake compiler and workers of
../core/fake, whose cells are commands: python3 ends_test.py LOCKSTEP FAKES"""
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP, FAKES = (sys.argv.pop(1), sys.argv.pop(1)) if len(sys.argv) > 2 else ("", "")
SCRATCH = tempfile.TemporaryDirectory(prefix="ls-")   # short: sockets have their paths in it


def environment(**more):
    folder = tempfile.mkdtemp(dir=SCRATCH.name)
    return dict(LOCKSTEP_BIN=FAKES, XDG_STATE_HOME=folder, XDG_RUNTIME_DIR=folder, **more)


class Run(unittest.TestCase):
    def script(self, text):
        with tempfile.NamedTemporaryFile("w", dir=SCRATCH.name, suffix=".cpp", delete=False) as file:
            file.write(text)
        return file.name

    def environment(self):
        return dict(os.environ, LC_ALL="C.UTF-8", **environment())

    def start(self, text, *options, **streams):
        return subprocess.Popen([LOCKSTEP, "run", self.script(text), *options], text=True, env=self.environment(), **streams)

    def test_sigterm_ends_the_run_as_interrupted(self):
        run = self.start("print begun\nloop\n", stdout=subprocess.PIPE)
        while "│ begun" not in run.stdout.readline():
            pass
        run.send_signal(signal.SIGTERM)
        rest, _ = run.communicate()
        self.assertEqual(run.returncode, 130, rest)
        self.assertNotIn("Ctrl-C", rest)
        self.assertNotIn("SIGKILL", rest)
        self.assertIn("■ ranks 0-1: interrupted", rest)

    def test_sigterm_ends_a_rank_that_stays(self):
        run = self.start("print begun\nrank 1 stubborn\n", stdout=subprocess.PIPE)
        while "│ begun" not in run.stdout.readline():
            pass
        run.send_signal(signal.SIGTERM)
        rest, _ = run.communicate()
        self.assertEqual(run.returncode, 130, rest)
        self.assertIn("rank 1 could not be interrupted and is ended", rest)

    def test_ranks_that_a_cell_ends_are_not_lost(self):
        run = self.start("print one\n// %%\n%dist_shutdown\n// %%\n%dist_init -n 1\n// %%\nprint two\n", "-n", "2",
                         stdout=subprocess.PIPE)
        output, _ = run.communicate()
        self.assertEqual(run.returncode, 0, output)
        self.assertIn("\ntwo\n✓ 4 cells\n", output)

    def test_output_that_is_lost_counts(self):
        with open("/dev/full", "w") as full:
            run = self.start("print lost\n", stdout=full, stderr=subprocess.PIPE)
            _, errors = run.communicate()
        self.assertEqual(run.returncode, 1)
        self.assertEqual(errors, "lockstep: the output can't be written: No space left on device\n")

    def test_a_run_whose_output_nobody_reads_stops(self):
        run = self.start("print lost\nloop\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with run:
            run.stdout.close()
            self.assertEqual(run.stderr.read(), "lockstep: the output can't be written: nobody reads it any more\n")
        self.assertEqual(run.returncode, 1)
        self.assertEqual(self.left_behind(), [])

    def test_a_run_whose_events_nobody_reads_stops(self):
        for text in ("storm 1000000\nloop\n", "rank 1 kill 9\nstorm 1000000\nloop\n", "print one\n// %%\n" * 300):
            run = self.start(text, "--json", "-", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            with run:
                run.stdout.read(100)
                run.stdout.close()
                self.assertIn("--json - can't be written: nobody reads it any more\n", run.stderr.read())
            self.assertEqual(run.returncode, 1)
            self.assertEqual(self.left_behind(), [])

    def test_events_that_are_lost_count(self):
        run = self.start("print a\n", "--json", "/dev/full", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        text, errors = run.communicate()
        self.assertEqual(run.returncode, 1)
        self.assertIn("0-1 │ a", text)
        self.assertEqual(errors, "lockstep: --json /dev/full can't be written: No space left on device\n")

    def test_sigquit_ends_the_run_as_sigterm_does(self):
        run = self.start("print begun\nloop\n", stdout=subprocess.PIPE)
        while "│ begun" not in run.stdout.readline():
            pass
        run.send_signal(signal.SIGQUIT)
        run.communicate()
        self.assertEqual(run.returncode, 130)
        self.assertEqual(self.left_behind(), [])

    def test_a_compile_that_takes_too_long_is_a_time_out(self):
        run = self.start("late\n", stdout=subprocess.PIPE)
        text, _ = run.communicate()
        self.assertEqual(run.returncode, 4)
        self.assertIn("✗ ranks 0-1: timeout\n", text)

    def test_a_compiler_that_was_stopped_is_a_time_out(self):
        run = self.start("stop\n// %%\nprint next\n", "--compile-timeout", "0.1", "--keep-going", stdout=subprocess.PIPE)
        text, _ = run.communicate()
        self.assertEqual(run.returncode, 4)
        self.assertIn("0-1 │ next", text)

    def test_an_interrupt_after_a_death_is_not_the_first(self):
        run = self.start("rank 1 kill 9\nloop\n", stdout=subprocess.PIPE)
        for line in run.stdout:  # the death is shown though rank 0 runs on
            if "✗ rank 1: SIGKILL" in line:
                break
        run.send_signal(signal.SIGINT)
        run.communicate()
        self.assertEqual(run.returncode, 5)

    def test_a_death_after_an_interrupt_is_not_the_first(self):
        run = self.start("print begun\nstubborn\n", stdout=subprocess.PIPE)
        while "│ begun" not in run.stdout.readline():
            pass
        while run.poll() is None:  # as a person who looks at what each Ctrl-C does: those that come together are one
            run.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(timeout=0.4)
        run.communicate()
        self.assertEqual(run.returncode, 130)

    def test_a_reader_that_does_not_read_does_not_hold_sigterm(self):
        run = self.start("storm 50000000\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        run.stdout.readline()
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(), 130)
        self.assertEqual(self.left_behind(), [])
        run.communicate()

    def test_a_working_directory_that_is_gone(self):
        folder = tempfile.mkdtemp(dir=SCRATCH.name)
        script = self.script("print a\n")
        for command in ("run", "check"):
            result = subprocess.run(["sh", "-c", f'cd {folder}; rmdir {folder}; exec "$0" {command} {script}', LOCKSTEP],
                                    capture_output=True, text=True, env=self.environment())
            os.makedirs(folder, exist_ok=True)
            self.assertEqual(result.returncode, 3)
            self.assertIn("has it been removed? cd to another one", result.stdout + result.stderr)

    def test_a_loopback_interface_that_is_down(self):
        command = ["unshare", "--net", LOCKSTEP, "run", self.script("print a\n")]
        if subprocess.run(command[:2] + ["true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no namespace of its own for the network")
        result = subprocess.run(command, capture_output=True, text=True, env=self.environment())
        self.assertEqual(result.returncode, 3)
        self.assertIn("ip link set lo up", result.stdout)

    def test_a_small_stack_is_made_larger_or_named(self):
        text = 'ulimit -Ss 256; [ "$1" ] && ulimit -Hs 256; shift; exec "$@"'
        for hard in ("", "1"):
            result = subprocess.run(["bash", "-c", text, "bash", hard, LOCKSTEP, "run", self.script("print a\n")],
                                    capture_output=True, text=True, env=self.environment())
            self.assertEqual(result.returncode, 0)
            if not hard:
                self.assertNotIn("stack", result.stdout)
            elif os.geteuid() != 0:  # whom the hard limit binds
                self.assertIn("the stack is limited to 256 kB", result.stdout)

    def left_behind(self):
        """Folders of sessions."""
        return [path for path, _, _ in os.walk(SCRATCH.name) if os.path.basename(path) == "cells"]



class FromAPipe(unittest.TestCase):
    def start(self, *arguments, **streams):
        return subprocess.Popen([LOCKSTEP, *arguments], env=dict(os.environ, LC_ALL="C.UTF-8", **environment()), **streams)

    def test_megabytes_that_are_no_text(self):
        for arguments in ([], ["run", "-"], ["check", "-"]):
            program = self.start(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            text, _ = program.communicate(bytes(20_000_000), timeout=60)
            self.assertEqual(program.returncode, 2)
            self.assertIn(b"zero byte", text)
            self.assertLess(len(text), 2000)

    def test_sigterm_ends_the_wait_for_a_cell(self):
        for number, code in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)):
            with self.start("-n", "2", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
                program.stdin.write(b"print one\n")
                program.stdin.flush()
                while b"one" not in program.stdout.readline():
                    pass
                program.send_signal(number)
                program.stdout.read()  # standard input stays open
                self.assertEqual(program.wait(), code)

    def test_an_interrupted_cell_is_the_last(self):
        with self.start("-n", "2", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            program.stdin.write(b"// %%\nprint one\nloop\n// %%\nprint two\n")
            program.stdin.close()
            while b"one" not in program.stdout.readline():
                pass
            program.send_signal(signal.SIGINT)
            self.assertNotIn(b"two", program.stdout.read())
            self.assertEqual(program.wait(), 130)


if __name__ == "__main__":
    unittest.main()
