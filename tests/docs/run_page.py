#!/usr/bin/env python3
"""Runs the transcripts of a page of the documentation, and compares what the page shows with what was seen.

    run_page.py LOCKSTEP PAGE [--update]

The comment on the line before a fenced block says where its text comes from:

    <!-- transcript -->                     the block has what was typed: `$ command` for the shell (continued by
                                            lines `> text`), `In [1] ranks 0-1 ▸ text` for the prompt of a session, ^C
                                            for that key. A block without a command continues the session of the block
                                            before it
    <!-- transcript of COMMAND -->          the same; COMMAND starts the session, and the block begins with its first
                                            prompt
    <!-- transcript: NAME.cpp, TITLE -->    what `lockstep run scripts/NAME.cpp` shows for the cells of that title
    <!-- not run: REASON -->                a transcript that can't be run here

Comments at the top of a script say how it is run: `// run: -n 3`, `// exit: 0`, `// columns: 125`. Programs run on a
pseudo-terminal of 125 columns, in an empty folder (shown as /home/me) that has links to the tree's folders. Texts are
compared after the rules of tests/support/transcript.py. A block that looks like a transcript and has no such comment is
an error. --update writes the blocks anew that differ.
"""
import difflib
import os
import pathlib
import shlex
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "support"))
from page import PROMPT, PageError, blocks_of, steps_of  # noqa: E402
from terminal_screen import LIMIT_S, Program  # noqa: E402
from transcript import header, same_on_all_pages  # noqa: E402

COLUMNS, ROWS = 125, 100


class Runner:
    """Runs the blocks of one page, in order."""

    def __init__(self, lockstep, scratch):
        self.lockstep = lockstep
        self.program = None      # that the last command has started
        self.shown = 0           # lines of its screen that are in a block already
        self.outputs = {}        # of scripts, by name: (title, lines) of each cell
        self.folder = scratch / "me"
        self.folder.mkdir()
        for entry in ROOT.iterdir():
            if entry.is_dir():  # a link to a file would let a session write over it
                (self.folder / entry.name).symlink_to(entry)
        runtime = scratch / "run"
        runtime.mkdir(mode=0o700)
        # The Python of the page comes first: a shim of pyenv that runs this has put its own before that of the test.
        programs = [str(pathlib.Path(lockstep).parent), os.environ.get("PYTHON_PROGRAMS"), os.environ["PATH"]]
        self.environment = {"PATH": ":".join(filter(None, programs)),
                            "XDG_RUNTIME_DIR": str(runtime), "XDG_STATE_HOME": str(scratch / "state"),
                            "PET_STANDALONE": "1"}  # torchrun takes a free port, rather than 29500

    def start(self, command, columns=COLUMNS):
        self.close()
        self.program = Program(["bash", "-c", f"cd {shlex.quote(str(self.folder))} && {command}"], columns=columns,
                               rows=ROWS, environment=self.environment)
        self.shown = 0

    def close(self):
        """Ends a session that is at its prompt, waits for the program's end, and returns its exit code."""
        if not self.program:
            return None
        program, self.program = self.program, None
        with program:
            if program.exit_code is None and self.at_prompt(program.screen.text()):
                program.send("\x04")
            return program.wait_end() if program.exit_code is None else program.exit_code

    @staticmethod
    def at_prompt(text):
        last = PROMPT.match(text.split("\n")[-1])
        return bool(last and not last.group(1))

    def lines(self):
        """The screen, without a prompt at which nothing has been typed."""
        text = self.program.screen.text()
        lines = text.replace(str(self.folder), "/home/me").split("\n") if text else []
        return lines[:-1] if self.at_prompt(text) else lines

    def new_lines(self):
        lines = self.lines()
        new = lines[self.shown:]
        self.shown = len(lines)
        return new

    def pump_until(self, condition, what):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            left = deadline - time.monotonic()
            if (left <= 0 or not self.program.pump(left)) and not condition():
                raise PageError(f"{what} did not come up; on the screen:\n" + "\n".join(self.lines()[-20:]))

    def until_prompt_or_end(self, prompts):
        """Until the program has ended, or waits at a prompt and `prompts` cells have been typed."""
        while not (self.at_prompt(self.program.screen.text()) and self.typed() >= prompts):
            if not self.program.pump(LIMIT_S):
                self.program.wait_end()
                return

    def typed(self):
        return sum(bool(PROMPT.match(line)) for line in self.lines())

    def interrupt(self, line_above):
        """Presses Ctrl-C: at a prompt, or once the cell that runs has printed the line."""
        if not PROMPT.match(line_above):
            wanted = same_on_all_pages(line_above)
            self.pump_until(lambda: wanted in same_on_all_pages("\n".join(self.lines()[self.shown:])), repr(line_above))
        self.program.send("\x03")

    def run_typed(self, block):
        """The block's text as this run shows it."""
        steps, seen = steps_of(block.lines), []
        if block.command:
            self.start(block.command)
            self.until_prompt_or_end(0)
            self.new_lines()
        if not steps:
            raise PageError("nothing is typed in this transcript: no line begins with `$ ` or a prompt")
        for at, (kind, text) in enumerate(steps):
            if kind == "command":
                self.start(text)
                seen += ("$ " + text.replace("\n", "\n> ")).split("\n")
                prompts = 0
            elif not self.program or self.program.exit_code is not None:
                raise PageError("a prompt, and no session: a line `$ lockstep` above it starts one")
            elif kind == "cell":
                prompts = self.typed() + 1
                self.program.send(f"\x1b[200~{text}\x1b[201~\r")
            else:
                prompts = self.typed() + bool(PROMPT.match(text))
                self.interrupt(text)
                if not PROMPT.match(text):  # no terminal echoes this key while a cell runs
                    seen += self.new_lines() + ["^C"]
            following, line_above = steps[at + 1] if at + 1 < len(steps) else (None, "")
            if following != "interrupt" or PROMPT.match(line_above):
                self.until_prompt_or_end(prompts)
                seen += self.new_lines()
        return seen

    def run_script(self, name):
        """What each cell of a script shows, as a list of (title, lines)."""
        if name not in self.outputs:
            script = HERE / "scripts" / name
            if not script.exists():
                raise PageError(f"there is no {script.relative_to(ROOT)}")
            text = script.read_text()
            self.start(shlex.join([self.lockstep, "run", str(script), *header(text, "run", "-n 2").split()]),
                       int(header(text, "columns", COLUMNS)))
            self.program.wait_end()
            code, lines = self.program.exit_code, self.lines()
            wanted = int(header(text, "exit", "0"))
            if code != wanted:
                raise PageError(f"{name} ended with {code}, and {wanted} was expected:\n" + "\n".join(lines))
            cells = []
            for line in lines[:-1]:  # the last one counts the cells
                prompt = PROMPT.match(line)
                if prompt:
                    cells.append((prompt.group(1), []))
                elif cells:
                    cells[-1][1].append(line)
            self.outputs[name] = cells
        return self.outputs[name]

    def run(self, block):
        if not block.script:
            return self.run_typed(block)
        seen = [line for title, lines in self.run_script(block.script) if title == block.title for line in lines]
        if not seen:
            raise PageError(f"no cell of {block.script} with the title {block.title!r} shows anything")
        return seen


def main():
    lockstep, page = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
    text = page.read_text()
    failures = ran = not_run = 0
    changed = []
    with tempfile.TemporaryDirectory(prefix="ls-") as scratch:  # short: sockets have their paths in it
        runner = Runner(lockstep, pathlib.Path(scratch))
        for block in blocks_of(text):
            place = f"{page.name}, line {block.begin + 1}"
            try:
                if block.reason:
                    not_run += 1
                    print(f"{place}: not run: {block.reason}")
                elif block.is_run:
                    ran += 1
                    seen = runner.run(block)
                    shown, wanted = (same_on_all_pages("\n".join(lines)).splitlines() for lines in (block.lines, seen))
                    if shown != wanted:
                        changed.append((block, seen))
                        failures += 1
                        print("\n".join(difflib.unified_diff(shown, wanted, place, "this run", lineterm="")))
                elif block.looks_like_a_transcript():
                    raise PageError("this looks like a transcript, and no comment on the line before the fence says how"
                                    " it is run (CONTRIBUTING.md, Transcripts)")
            except PageError as error:
                failures += 1
                print(f"{place}: {error}")
        runner.close()
    print(f"{page.name}: transcripts: {ran} run, {not_run} not run; blocks that fail: {failures}")
    if "--update" in sys.argv and changed:
        lines = text.splitlines()
        for block, seen in reversed(changed):
            lines[block.begin:block.end] = seen
        page.write_text("\n".join(lines) + "\n")
        print(f"{page}: {len(changed)} blocks are written anew")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
