"""Transcripts of sessions, for the tests that compare them: how a script is run, and what may differ between two runs
(times, process ids, versions, addresses, figures of the machine). Texts are compared after the rules below have
replaced these parts; the rest must be the same in every run."""
import re

RULES = [
    (r"\b\d+(\.\d+)?(e[+-]?\d+)? (ns|µs|ms|s|min)\b", "T"),
    (r"\bpid \d+", "pid PID"),
    (r"\b(LibTorch|clang) \d+(\.\d+)+", r"\1 VERSION"),
    (r"0x[0-9a-f]{6,}", "ADDR"),
    (r"\band \d+ values of environment\b", "and N values of environment"),
    (r"\b\d+ of 5056 elements\b", "N of 5056 elements"),  # of the states of two generators
]

# A page shows what a run printed, with figures of the machine, which files of expected output avoid.
PAGE_RULES = RULES + [
    (r"\bLockstep \d+(\.\d+)+", "Lockstep VERSION"),
    (r"\bPython job \d+-\w+", "Python job JOB"),
    (r"(LibTorch VERSION)\+\w+", r"\1"),
    (r"(?m)^building the precompiled header of LibTorch .*\n", ""),
    # A wait in a collective: the rank reports it, and so does the session that watches it; either may be first.
    (r"(?m)^• rank \d+: (waits|in) .*\n", ""),
    (r'"time": ?[\d.]+', '"time":T'),
    # The distance of values that are far apart depends on their last bits.
    (r"\b\d{4,} ULP\b", "N ULP"),
    # Parts of a time, stragglers, and the charts of %buckets.
    (r"\b\d+(% more than|(\.\d)? times) the median", "SLOWER than the median"),
    (r"\b\d+(\.\d+)?%", "P%"),
    (r"\b\d+\.\d+ x\b", "N x"),
    (r"\b\d+\.\d times as long", "N times as long"),
    (r"\b\d+ of the \d+ collectives\b", "N of the N collectives"),
    (r"(times of step \d+ on rank) \d+", r"\1 R"),
    (r"(?m)(?<=T)  +[.=#|][.=#| ]+(?=\S)", "  CHART  "),
    # Another LibTorch may run other operators for the same C++.
    (r"\b\d+ operators\b", "N operators"),
    (r"\boperator \d+", "operator N"),
    (r"(?m)^(    [\w:]+) #\d+ \[", r"\1 #N ["),
    # Rows of %memory, %ranks and %dist_status.
    (r"(?m)((?:process|malloc), [a-z ]*?|cell \d+: peak, kept) +[\d.]+ MB.*$", r"\1  SIZES"),
    (r"(?m)(\d+ +\d+) +\d+ +\S+ +cpu +\d+  \w+ +(\w+) +[\d.]+\S*$", r"\1 PID HOST cpu THREADS KERNELS \2 VERSION"),
    (r"(?m)^(\d+ +\w+) +\d+ +\S+ +cpu +\d+ MB", r"\1  PID  HOST  cpu  SIZE"),
]


def apply(rules, text):
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return text


def same_in_all_runs(text):
    return apply(RULES, text)


def joined(text):
    """Joins lines that were wrapped at the width of the terminal: after a line with a sign of the renderer, they are
    indented by two columns."""
    lines = []
    for line in text.splitlines():
        if lines and re.match(r"  \S", line) and re.match("[✓✗•■]", lines[-1]):
            lines[-1] += line[1:]
        else:
            lines.append(line)
    return "".join(line + "\n" for line in lines)


def same_on_all_pages(text):
    """Replaces also what follows from figures: the widths of columns, and where lines are wrapped. Numbers with many
    digits are rounded, since the last digits depend on the processor."""
    text = apply(PAGE_RULES, joined(text))
    text = re.sub(r"\b\d+\.\d{5,}\b", lambda number: f"{float(number[0]):.3g}", text)
    return re.sub(r"(?<=\S) {2,}", "  ", text)


def header(script_text, name, default):
    """The value of a comment `// name: value` at the top of a session script."""
    found = re.search(rf"^// {name}: (.*)$", script_text, re.M)
    return found.group(1).strip() if found else default
