#!/usr/bin/env python3
"""Runs the catalogue of faults, and says how many of them are named right.

    run_catalogue.py LOCKSTEP [NAME...] [--verbose] [--page]
    run_catalogue.py --check-page

Each script beside this file has one injected fault; those under healthy/ look suspicious and are right. A comment at the top of a
script says how it is run and what has to be found, one `// key: value` a line:

    ranks: 2                   lockstep run -n 2
    options: --hang-timeout 1  further options
    exit: 4                    the exit code of `lockstep run` (1; of healthy ones 0)
    limit: 30                  seconds that it may take (600)
    severity: note             of what is expected (fault)
    expect: verify:mismatch kind=parameter ranks=1 tensor=fc2.weight step=3
    alone: REASON              a healthy script that shares its session with no other
    thread: owner/name#1       a public thread in which somebody met this
    varies: REASON             the message is another one in each run, and is not compared with docs/diagnosis.md

`expect` is INSPECTOR:VERDICT, and fields that have to be as given: kind, ranks, reference, object, tensor (the first), tensors (all),
op (its name), step, where (`here` is the line that has the comment `<- here`). A script may expect several findings. Right is a
script whose findings are those, no more and no fewer; `ok` does not count, and a healthy script expects none. What is compared is
the session's data (docs/events.md). The message of the first finding is what docs/diagnosis.md shows.
"""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "support"))
from transcript import same_on_all_pages  # noqa: E402

PAGE = FOLDER.parent.parent / "docs" / "diagnosis.md"


def rank_list(text):
    ranks = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ranks += range(int(first), int(last or first) + 1)
    return ranks


class Script:
    def __init__(self, name):
        self.name, self.path = name, FOLDER / f"{name}.cpp"
        self.healthy = name.startswith("healthy/")
        text = self.path.read_text()
        head = re.match(r"(//.*\n)*", text).group(0)
        lines = [line[2:].strip() for line in head.splitlines()]
        self.title, self.fields, self.expected = lines[0], {}, []
        for line in lines[1:]:
            key, colon, value = line.partition(": ")
            if not colon or not re.fullmatch("[a-z]+", key):
                raise SystemExit(f"{self.path}: not `key: value`: {line}")
            if key == "expect":
                self.expected.append(value)
            else:
                self.fields[key] = value
        if bool(self.expected) == self.healthy:
            raise SystemExit(f"{self.path}: a fault expects findings, a healthy script none")
        self.here = self.place_of_mark(text)
        self.severity = self.fields.get("severity", "fault")
        self.limit = int(self.fields.get("limit", "600"))
        self.exit = int(self.fields.get("exit", "0" if self.healthy else "1"))

    @staticmethod
    def place_of_mark(text):
        """`cell 2, line 7` of the line with the comment; None without one."""
        cell = line_number = 0
        for line in text.splitlines():
            if re.match(r"// %%(\s|$)", line):
                cell, line_number = cell + 1, 0
                continue
            line_number += 1
            if "// <- here" in line:
                return f"cell {cell}, line {line_number}"
        return None

    def matches(self, expected, finding):
        head, *fields = shlex.split(expected)
        inspector, verdict = head.split(":")
        seen = {"inspector": finding["inspector"], "verdict": finding["verdict"], "severity": finding["severity"]}
        wanted = {"inspector": inspector, "verdict": verdict, "severity": self.severity}
        for field in fields:
            key, _, value = field.partition("=")
            if key in ("ranks", "reference"):
                wanted[key] = rank_list(value)
                seen[key] = finding["ranks" if key == "ranks" else "reference_ranks"]
            elif key == "op":
                wanted[key], seen[key] = value, finding["op"] and finding["op"]["name"]
            elif key == "tensors":
                wanted[key], seen[key] = value.split(","), [each["name"] for each in finding["tensors"]]
            elif key == "step":
                wanted[key], seen[key] = int(value), finding["step"]
            elif key == "where":
                wanted[key], seen[key] = self.here, finding["where"]
            elif key in ("kind", "object", "tensor"):
                wanted[key], seen[key] = value, finding[key]
            else:
                raise SystemExit(f"{self.path}: `{key}` is no field to expect")
        return wanted == seen

    def wrong_in(self, events):
        """What is wrong with the answer. Nothing is wrong: an empty list."""
        left = [e for e in events if e["event"] == "finding" and e["verdict"] != "ok"]
        wrong = []
        for expected in self.expected:
            found = next((each for each in left if self.matches(expected, each)), None)
            if found is None:
                wrong.append(f"not found: {expected}")
            else:
                left.remove(found)
        wrong += [f"found, and not expected: {json.dumps(each, ensure_ascii=False)}" for each in left]
        # A healthy script whose inspector has not looked at anything proves nothing.
        looks = self.fields.get("ok")
        if looks and not any(e["event"] == "finding" and e["inspector"] == looks and e["verdict"] == "ok" for e in events):
            wrong.append(f"no `ok` of {looks}")
        return wrong


def run(lockstep, scripts):
    """Runs scripts in one session. For each: what is wrong with the answer, and the events of its cells."""
    first = scripts[0]
    command = [str(pathlib.Path(lockstep).resolve()), "run", *(str(script.path) for script in scripts), "--json", "-",
               "-n", first.fields.get("ranks", "2"), *shlex.split(first.fields.get("options", ""))]
    if len(scripts) > 1:
        command.append("--keep-going")
    try:
        with tempfile.TemporaryDirectory() as folder:  # nothing that lies here is to be seen by cells
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=first.limit)
    except subprocess.TimeoutExpired as late:
        seen = (late.stdout or b"").decode(errors="replace").splitlines()
        wrong = [f"does not end within {first.limit} s; so far:"] + [line for line in seen if '"session"' not in line]
        return [(wrong, []) for _ in scripts]
    events = [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]
    files = {e["cell"]: e["file"] for e in events if e["event"] == "cell"}
    answers = []
    for script in scripts:
        # What belongs to no cell concerns each script.
        own = [e for e in events if len(scripts) == 1 or files.get(e.get("cell"), str(script.path)) == str(script.path)]
        wrong = script.wrong_in(own)
        ended = [e for e in own if e["event"] == "cell"]
        if len(scripts) > 1 and not (ended and all(e["expected"] for e in ended)):
            wrong.append("a cell did not end as it should" if ended else "no cell was run")
        if len(scripts) == 1 and done.returncode != script.exit:
            wrong.append(f"exit code {done.returncode}, and {script.exit} was expected")
        if wrong:
            wrong += [f"error: {e['type']}: {e['message']} ({e['where']})" for e in own if e["event"] == "error"]
        answers.append((wrong, own))
    return answers


def sessions_of(scripts):
    """Healthy scripts share a session for each number of ranks, but for those that ask for something of their own."""
    sessions = {}
    for script in scripts:
        is_alone = not script.healthy or script.fields.keys() & {"alone", "options", "exit"}
        sessions.setdefault(script.name if is_alone else script.fields["ranks"], []).append(script)
    return list(sessions.values())


def says(events):
    """What the first finding that is not `ok` says."""
    for event in events:
        if event["event"] == "finding" and event["verdict"] != "ok":
            return event["message"]
    return ""


def all_names():
    return sorted(p.stem for p in FOLDER.glob("*.cpp")) + sorted(f"healthy/{p.stem}" for p in FOLDER.glob("healthy/*.cpp"))


PARTS = {"verify": "Replicas", "grads": "Gradients", "nan": "NaN and Inf", "collectives": "Collectives that do not match",
         "hang": "Hangs", "data": "Data", "ranks": "Ranks", "lockstep": "Operator by operator", "time_sync": "Time"}


def cell(text):
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def thread_link(thread):
    if not thread:
        return ""
    repository, number = thread.split("#")
    return f" [{thread}](https://github.com/{repository}/issues/{number})"


def page(rows):
    """The tables of docs/diagnosis.md, from the scripts and from what was said about them."""
    text = ""
    for inspector, title in PARTS.items():
        part = [(script, message) for script, message in rows if script.expected[0].startswith(inspector + ":")]
        if not part:
            continue
        text += f"\n### {title}\n\n| symptom | run | message | cause | fix | script |\n|---|---|---|---|---|---|\n"
        for script, message in part:
            columns = [script.fields["symptom"], script.fields["run"], message, script.fields["cause"], script.fields["fix"]]
            link = f"[{script.name}](../tests/faults/{script.name}.cpp){thread_link(script.fields.get('thread'))}"
            text += "| " + " | ".join(map(cell, columns)) + f" | {link} |\n"
    return text


def write_page(rows):
    begin, end = "<!-- faults: begin -->\n", "<!-- faults: end -->\n"
    old = PAGE.read_text()
    PAGE.write_text(old[:old.index(begin) + len(begin)] + page(rows) + "\n" + old[old.index(end):])


def row_of(script):
    """The script's row in docs/diagnosis.md, or None."""
    return next((line for line in PAGE.read_text().splitlines() if f"(../tests/faults/{script.name}.cpp)" in line), None)


def said_on_page(script):
    """The column "message" of the script's row."""
    row = row_of(script)
    return re.split(r"(?<!\\) \| ", row)[2] if row else ""


def is_on_page(script, message):
    return "varies" in script.fields or same_on_all_pages(cell(message)) == same_on_all_pages(said_on_page(script))


def check_page(scripts):
    """Every fault has its row, with what its script says. The run of each script compares what the inspector said."""
    wrong = 0
    for script in scripts:
        if script.healthy:
            continue
        row = row_of(script)
        if row is None or any(cell(script.fields[key]) not in row for key in ("symptom", "run", "cause", "fix")):
            print(f"{PAGE.name}: {'no row of' if row is None else 'another row than'} {script.name}; --page writes the tables anew")
            wrong += 1
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep", nargs="?")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--verbose", action="store_true", help="print what was found")
    parser.add_argument("--page", action="store_true", help="write the tables of docs/diagnosis.md anew, with the messages that have changed in this run")
    parser.add_argument("--check-page", action="store_true", help="only see whether docs/diagnosis.md has a row for each fault")
    arguments = parser.parse_intermixed_args()
    if arguments.check_page:
        return check_page([Script(name) for name in all_names()])
    if not arguments.lockstep:
        parser.error("which lockstep?")
    scripts = [Script(name) for name in arguments.names or all_names()]
    right = {True: 0, False: 0}
    alarms = failures = 0
    said = {}
    for session in sessions_of(scripts):
        begin = time.monotonic()
        answers = run(arguments.lockstep, session)
        took = (time.monotonic() - begin) / len(session)
        for script, (wrong, events) in zip(session, answers):
            if not script.healthy and not wrong and not arguments.page and not is_on_page(script, says(events)):
                wrong = [f"{PAGE.name} does not have what was said (--page writes it anew): {says(events)}"]
            right[script.healthy] += not wrong
            alarms += sum(line.startswith("found") for line in wrong) if script.healthy else 0
            failures += bool(wrong)
            print(f"{script.name:44} {took:5.1f} s  {'WRONG' if wrong else 'right'}", flush=True)
            for line in wrong:
                print(f"    {line}")
            if arguments.verbose:
                for event in events:
                    if event["event"] == "finding":
                        print(f"    {event['inspector']}:{event['verdict']} {event['message']}")
            if not script.healthy and not is_on_page(script, says(events)):
                said[script.name] = says(events)
    faults = sum(not script.healthy for script in scripts)
    print(f"{right[False]} of {faults} faults named right, {alarms} findings on {len(scripts) - faults} twins "
          f"({right[True]} of them right)")
    if arguments.page:
        faults_of_page = [script for script in map(Script, all_names()) if not script.healthy]
        write_page([(script, said.get(script.name, said_on_page(script).replace("\\|", "|"))) for script in faults_of_page])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
