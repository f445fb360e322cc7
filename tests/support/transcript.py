"""Transcripts of sessions, for the tests that compare them: how a script is to be run, and what two runs of it may show differently
(times, process ids, versions, addresses, figures of the machine). Texts are compared after the rules below; what the rules leave has
to be the same in every run."""
import re

RULES = [
    (r"\b\d+(\.\d+)?(e[+-]?\d+)? (ns|µs|ms|s|min)\b", "T"),
    (r"\bpid \d+", "pid PID"),
    (r"\b(LibTorch|clang) \d+(\.\d+)+", r"\1 VERSION"),
    (r"0x[0-9a-f]{6,}", "ADDR"),
]

# A page shows what a run printed, figures of the machine included, which a file of expected output does not have.
PAGE_RULES = RULES + [
    (r"\bLockstep \d+(\.\d+)+", "Lockstep VERSION"),
    (r"(?m)^building the precompiled header of LibTorch .*\n", ""),
    (r'"time": ?[\d.]+', '"time":T'),
    (r"\b\d{4,} ULP\b", "N ULP"),                                      # of values that are far apart: the last bit decides
    (r"\b\d+(\.\d+)?%", "P%"),                                         # of a time
    (r"\b\d+\.\d+ x\b", "N x"),
    (r"\b\d+ of the \d+ collectives\b", "N of the N collectives"),      # stragglers
    (r"\b\d+\.\d times as long", "N times as long"),
    (r"(times of step \d+ on rank) \d+", r"\1 R"),                       # %buckets: who was last
    (r"(?m)(?<=T)  +[.=#|][.=#| ]+(?=\S)", "  CHART  "),
    (r"(?m)((?:process|malloc), [a-z ]*?|cell \d+: peak, kept) +[\d.]+ MB.*$", r"\1  SIZES"),  # %memory
    # Rows of %ranks and of %dist_status.
    (r"(?m)(\d+ +\d+) +\d+ +\S+ +(cpu +\d+)  \w+ +(\w+) +[\d.]+\S*$", r"\1  PID  HOST  \2  KERNELS  \3  VERSION"),
    (r"(?m)^(\d+ +\w+) +\d+ +\S+ +cpu +\d+ MB", r"\1  PID  HOST  cpu  SIZE"),
]


def apply(rules, text):
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return text


def same_in_all_runs(text):
    return apply(RULES, text)


def joined(text):
    """Lines that the width of the terminal has wrapped, as one: what follows a sign of the renderer is indented by two columns."""
    lines = []
    for line in text.splitlines():
        if lines and re.match(r"  \S", line) and re.match("[✓✗•■]", lines[-1]):
            lines[-1] += line[1:]
        else:
            lines.append(line)
    return "".join(line + "\n" for line in lines)


def same_on_all_pages(text):
    """Columns of a table are as wide as its figures, and where a line is wrapped depends on them, too."""
    text = apply(PAGE_RULES, joined(text))
    text = re.sub(r"\b\d+\.\d{5,}\b", lambda number: f"{float(number[0]):.3g}", text)  # the last digits depend on the processor
    return re.sub(r"(?<=\S) {2,}", "  ", text)


def header(script_text, name, default):
    """What a comment `// name: value` at the top of a session script says."""
    found = re.search(rf"^// {name}: (.*)$", script_text, re.M)
    return found.group(1).strip() if found else default
