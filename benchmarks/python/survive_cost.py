"""What it costs to go on after a loss: checkpoints, a rank that comes back, ranks that go on without it, and a session
that is picked up again. Prints a table; the roof of a row is measured in the same session, or in the same round.

    PYTHON benchmarks/python/survive_cost.py LOCKSTEP [--ranks 4] [--megabytes 100] [--rounds 3] [--python]

The model has --megabytes of parameters, and Adam as much again twice. --python: the ranks are PYTHON.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from session_cost import Prompt

BUILD = {
    "cpp": """torch::manual_seed(1);
auto net = std::make_shared<torch::nn::SequentialImpl>();
for (int i = 0; i < LAYERS; ++i) net->push_back(torch::nn::Linear(1024, 1024));
torch::optim::Adam optimizer(net->parameters());
for (auto& p : net->parameters()) p.mutable_grad() = torch::ones_like(p);
optimizer.step();""",
    "py": """torch.manual_seed(1)
net = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(LAYERS)))
optimizer = torch.optim.Adam(net.parameters())
for p in net.parameters(): p.grad = torch.ones_like(p)
optimizer.step()"""}
SAVE = {"cpp": """{ torch::serialize::OutputArchive a; net->save(a); a.save_to("FOLDER/net" + std::to_string(rank)); }
{ torch::serialize::OutputArchive a; optimizer.save(a); a.save_to("FOLDER/adam" + std::to_string(rank)); }""",
        "py": """torch.save([net.state_dict(), optimizer.state_dict()], f"FOLDER/{rank}")"""}
LOAD = {"cpp": """{ torch::serialize::InputArchive a; a.load_from("FOLDER/net" + std::to_string(rank)); net->load(a); }
{ torch::serialize::InputArchive a; a.load_from("FOLDER/adam" + std::to_string(rank)); optimizer.load(a); }""",
        "py": """with open(f"FOLDER/{rank}", "rb") as file: net_state, adam_state = torch.load(file)
net.load_state_dict(net_state); optimizer.load_state_dict(adam_state)"""}
DIE = {"cpp": "%%rank LAST\n#include <csignal>\n::raise(SIGKILL);",
       "py": "%%rank LAST\nimport signal; signal.raise_signal(signal.SIGKILL)"}


def cells_of(language, given, folder):
    """(what, text), in their order."""
    def text(of):
        return (of[language].replace("LAYERS", str(max(1, given.megabytes * 1_000_000 // (4 * 1024 * 1025))))
                .replace("FOLDER", folder).replace("LAST", str(given.ranks - 1)))
    return [("build", text(BUILD)), ("save", text(SAVE)), ("checkpoint", f"%checkpoint {folder}/point"), ("load", text(LOAD)),
            ("restore", f"%restore {folder}/point"), ("die", text(DIE)), ("restart", f"%restart {given.ranks - 1} --from 0"),
            ("die again", text(DIE)), ("continue", "%dist_continue")]


def run(given, language):
    """what → seconds, of the cells of one session; "start" until its ranks are there."""
    with tempfile.TemporaryDirectory() as folder:
        cells = cells_of(language, given, folder)
        script = pathlib.Path(folder) / f"survive.{language}"
        mark = "#" if language == "py" else "//"
        script.write_text("".join(f"{mark} %% {what}\n{text}\n" for what, text in cells))
        command = [given.lockstep, "run", script, "-n", str(given.ranks), "--keep-going", "--json", "-"]
        if language == "py":
            command.append(f"--python={sys.executable}")
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ends = [each for each in events if each["event"] == "cell"]
    regrouped = [each for each in events if each["event"] == "message" and " are the default group of " in each["text"]]
    states = [each["status"] for each in ends[:8]]
    if states != ["ok"] * 5 + ["dead", "ok", "dead"] or not regrouped:
        sys.exit(f"the cells ended with {states}:\n{done.stderr[-4000:]}")
    start = next(each["time"] for each in events if each["event"] == "session")
    times = [start, *(each["time"] for each in ends[:8]), regrouped[-1]["time"]]
    return {"start": start, **{what: later - before for (what, _), before, later in zip(cells, times, times[1:])}}


def picked_up(given, language):
    """Seconds from `lockstep` to the prompt of a session that can be detached, and from `--resume` to its prompt."""
    command = [given.lockstep, "--detachable", "-n", str(given.ranks)]
    first = Prompt(command + ([f"--python={sys.executable}"] if language == "py" else []))
    start = first.wait_for(r"In \[1\]") - first.begun
    first.type("k = 1\r" if language == "py" else "int k = 1;\r")
    first.wait_for(r"In \[2\]")
    first.type("%detach\r")
    identity = None
    while identity is None:
        first.wait_for(r"--resume ")
        found = re.match(r"(\S+)", first.seen)
        identity = found and found.group(1)
    first.close()
    second = Prompt([given.lockstep, "--resume", identity])
    resumed = second.wait_for(r"In \[2\]") - second.begun
    second.type("%exit\r")
    second.close()
    return start, resumed


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("lockstep")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", action="store_true")
    given = parser.parse_args()
    language = "py" if given.python else "cpp"
    found = collections.defaultdict(list)
    for _ in range(given.rounds):
        for what, seconds in run(given, language).items():
            found[what].append(seconds)
        for what, seconds in zip(("prompt", "resume"), picked_up(given, language)):
            found[what].append(seconds)
    middle = {what: statistics.median(values) for what, values in found.items()}
    print(f"{given.ranks} ranks, {3 * given.megabytes} MB of state each; load average {os.getloadavg()[0]:.1f}\n")
    print("| what | seconds | beside | ratio |\n|---|---|---|---|")
    for what, roof, words in (("checkpoint", "save", "torch's own saving of the same tensors by each rank"),
                              ("restore", "load", "torch's own loading"), ("restart", "start", "the start of the session"),
                              ("continue", "start", "the start of the session"),
                              ("resume", "prompt", "the first prompt of the session")):
        print(f"| {what} | {middle[what]:.2f} | {words}: {middle[roof]:.2f} | {middle[what] / middle[roof]:.2f} |")


if __name__ == "__main__":
    main()
