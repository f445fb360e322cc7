#!/usr/bin/env python3
"""Completion in bash, and the man page: commands and options are those of the program. Usage: completion_test.py LOCKSTEP
TREE."""
import pathlib
import re
import subprocess
import sys
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


class ManPage(unittest.TestCase):
    def test_it_names_every_command_and_option_of_run(self):
        page = (TREE / "docs/man/lockstep.1").read_text().replace("\\-", "-").replace("\\fR", "").replace("\\fB", "")
        for command in commands():
            self.assertRegex(page, rf"\b{command}\b")
        options = set(re.findall(r"(?:^ +|,)(--[a-z-]+)", output(LOCKSTEP, "run", "--help"), re.MULTILINE)) - {"--help"}
        self.assertEqual({each for each in options if each not in page}, set())


if __name__ == "__main__":
    unittest.main()
