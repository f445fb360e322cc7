"""Reads a page of the documentation: its fenced blocks, how each of them is to be run, and what was typed in it."""
import re

# A comment on the line before the block.
MARKER = re.compile(r"<!-- (?:transcript(?: of (?P<command>.+)|: (?P<script>\S+\.cpp), (?P<title>.+))?"
                    r"|not run: (?P<reason>.+)) -->$")
FENCE = re.compile(r"```(\w*)$")

PROMPT = re.compile(r"(?:In \[\d+\] (?:ranks? [\d,-]+ )?▸|\(Pdb\) rank \d+>) ?(.*)$")
COMMAND = re.compile(r"\$ (.+)$")
# What a session prints begins with a sign or with the ranks that it comes from.
OUTPUT = re.compile(r"[✓✗•■]|\d[\d,-]* +[=│┊] |cell \d+:\d+:\d+: |\^C$")
JSON_EVENT = re.compile(r'\{"event":')


class PageError(Exception):
    """A block that can't be run in the way that it is marked."""


class Block:
    """Lines `begin` to `end` (excluded; from 0) of a page, without the fences."""

    def __init__(self, lines, begin, end, language, before):
        self.lines, self.begin, self.end, self.language = lines[begin:end], begin, end, language
        marker = MARKER.match(before)
        found = marker.groupdict() if marker else {}
        self.command, self.script, self.title = found.get("command"), found.get("script"), found.get("title")
        self.reason = found.get("reason")
        self.is_run = bool(marker and not self.reason)

    def looks_like_a_transcript(self):
        return any(each.match(line) for line in self.lines for each in (PROMPT, COMMAND, OUTPUT, JSON_EVENT))


def blocks_of(text):
    """The fenced blocks of a page, and blocks that are indented by four columns; the latter can't be marked."""
    lines, blocks = text.splitlines(), []
    at = 0
    while at < len(lines):
        fence = FENCE.match(lines[at].strip())
        indented = lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip())
        if fence:
            end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == "```"), None)
            if end is None:
                raise PageError(f"line {at + 1}: a block without an end")
            blocks.append(Block(lines, at + 1, end, fence.group(1), lines[at - 1] if at else ""))
            at = end
        elif indented:
            end = at
            while end < len(lines) and lines[end].startswith("    "):
                end += 1
            inside = [line[4:] for line in lines[:end]]
            blocks.append(Block(inside, at, end, "indented", ""))
            at = end
        at += 1
    return blocks


def steps_of(lines):
    """What was typed in a block: ("command", text) for `$ text` with lines `> text` that continue it, ("cell", text) for a
    prompt with the lines of its cell, and ("interrupt", the line above) for a line ^C. All other lines are output. A magic
    is one line; any other cell ends before a line that looks like output."""
    steps, at = [], 0
    while at < len(lines):
        line = lines[at]
        command, prompt = COMMAND.match(line), PROMPT.match(line)
        at += 1
        if command:
            typed = [command.group(1)]
            while at < len(lines) and typed[-1].endswith(("|", "\\")) and lines[at].startswith("> "):
                typed.append(lines[at][2:])
                at += 1
            steps.append(("command", "\n".join(typed)))
        elif prompt and prompt.group(1) == "^C":
            steps.append(("interrupt", line))
        elif prompt:
            typed = [prompt.group(1)]
            one_line = line.startswith("(Pdb)") or re.match("%[^%]|!", typed[0])
            while not one_line and at < len(lines) and not any(p.match(lines[at]) for p in (PROMPT, COMMAND, OUTPUT)):
                typed.append(lines[at])
                at += 1
            steps.append(("cell", "\n".join(typed).rstrip()))
        elif line == "^C":
            steps.append(("interrupt", lines[at - 2] if at > 1 else ""))
    return steps
