#!/usr/bin/env python3
"""Completion in bash and zsh, and the man page: commands and options are those of the program. Usage: completion_test.py LOCKSTEP
TREE."""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

LOCKSTEP, TREE = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))


def output(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=60,
                          stdin=subprocess.DEVNULL, **more).stdout


def completed(*words):
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep; printf "%s\\n" "${COMPREPLY[@]}"')
    return output("bash", "-c", script, "bash", str(TREE / "shell/completion/lockstep.bash"), LOCKSTEP, *words).split()


def commands():
    text = output(LOCKSTEP, "--help")
    return re.findall(r"^  ([a-z]+) ", text[text.index("Subcommands:"):], re.MULTILINE)


class Completion(unittest.TestCase):
    def test_commands(self):
        self.assertEqual(sorted(completed("")), sorted(commands()))
        self.assertEqual(completed("ver"), ["verify"])
        self.assertEqual(sorted(completed("sessions", "")), ["clean", "list", "show"])

    def test_options(self):
        self.assertEqual(completed("run", "--ju"), ["--junit"])
        self.assertEqual(completed("run", "x.cpp", "--backend", "n"), ["nccl"])
        self.assertIn("--num-processes", completed("--"))
        self.assertNotIn("--junit", completed("verify", "--"))

    def test_files(self):
        found = completed("run", f"{TREE}/README")
        self.assertEqual(found, [f"{TREE}/README.md"])


class ShellOnATerminal(unittest.TestCase):
    """Text is typed, and what is shown is read back."""

    def start(self, *command, folder="."):
        self.shell, self.terminal = pty.fork()
        if self.shell == 0:
            os.chdir(folder)
            os.environ.update(TERM="vt100", PATH=f"{pathlib.Path(LOCKSTEP).parent}:{os.environ['PATH']}")
            os.execvp(command[0], command)
        self.addCleanup(self.end)

    def end(self):
        os.close(self.terminal)  # which ends the shell
        os.waitpid(self.shell, 0)

    def type(self, text):
        os.write(self.terminal, text.encode())

    def read(self, pattern):
        text, deadline = "", time.monotonic() + 60
        while not (found := re.search(pattern, text)):
            self.assertTrue(select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))[0], text)
            text += os.read(self.terminal, 4096).decode(errors="replace")
        return found


class Bash(ShellOnATerminal):
    def test_a_command_is_no_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "run" / "scripts").mkdir(parents=True)
            self.start("bash", "--norc", "--noprofile", folder=folder)
            self.type(f"source {TREE}/shell/completion/lockstep.bash; bind 'set bell-style none'; echo read''y\n")
            self.read("ready")
            self.type("lockstep ru\trun/s\t\x01echo '<\x05>'\n")
            self.assertEqual(self.read(r"<(lockstep[^>]*)>\r\n")[1], "lockstep run run/scripts/")


@unittest.skipUnless(shutil.which("zsh"), "zsh is not installed (apt-get install zsh)")
class Zsh(ShellOnATerminal):
    """Tab is pressed, and the line read back."""

    def setUp(self):
        self.start("zsh", "-f", "-i")
        # Ctrl-X shows the line and empties it. The title of a list is no part of the line.
        self.type(f"fpath=({TREE}/shell/completion $fpath); autoload -Uz compinit; compinit -D -u; unsetopt beep\n"
                  "show() { print -r -- \"<$BUFFER>\"; BUFFER=; zle reset-prompt }; zle -N show; bindkey '^X' show\n"
                  "setopt menu_complete; bindkey '^I' complete-word\nprint read''y\n")
        self.read(r"ready")

    def completed(self, text):
        self.type(text + "\t\x18")
        return self.read(r"<(lockstep[^>]*)>")[1].rstrip()

    def test_commands_options_and_files(self):
        self.assertEqual(self.completed("lockstep ver"), "lockstep verify")
        self.assertEqual(self.completed("lockstep run --ju"), "lockstep run --junit")
        self.assertEqual(self.completed("lockstep run x.cpp --backend n"), "lockstep run x.cpp --backend nccl")
        self.assertEqual(self.completed(f"lockstep run {TREE}/READ"), f"lockstep run {TREE}/README.md")


class ManPage(unittest.TestCase):
    def test_it_names_every_command_and_option_of_run(self):
        page = (TREE / "docs/man/lockstep.1").read_text().replace("\\-", "-").replace("\\fR", "").replace("\\fB", "")
        for command in commands():
            self.assertRegex(page, rf"\b{command}\b")
        options = set(re.findall(r"(?:^ +|,)(--[a-z-]+)", output(LOCKSTEP, "run", "--help"), re.MULTILINE)) - {"--help"}
        self.assertEqual({each for each in options if each not in page}, set())


if __name__ == "__main__":
    unittest.main()
