#!/usr/bin/env python3
"""A session that runs gets more ranks than it was started with: %dist_init -n M. Usage: grow_test.py LOCKSTEP [TEST...]"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from continue_test import FIRST_HALF, LOAD, SECOND_HALF, TENSORS, digests
from faults_test import LOCKSTEP, check, check_gone, run_tests
from restart_test import ADAM, SGD, lines_by_rank, session, status_of, texts

GROW = "// %% checkpoint\n" + TENSORS + """if (rank == 0) {
  torch::save(tensors(), arg("folder") + "/net.pt");
  torch::save(optimizer, arg("folder") + "/optimizer.pt");
}
// %% grow
%dist_init -n 4 --from 0
// %% seeds
set_seed(3 + rank);
std::printf("threads %d %s\\n", at::get_num_threads(), dist::default_group()->getBackendName().c_str()); std::cout << std::flush;
"""


def train_on_with_more_than(ranks, optimizer):
    first, second = (part.replace("OPTIMIZER", optimizer) for part in (FIRST_HALF, SECOND_HALF))
    with tempfile.TemporaryDirectory() as folder:
        grown = session(first + GROW + second, "-n", str(ranks), "--arg", f"folder={folder}")
        everything = grown.until(lambda e: e["event"] == "session" and e["grown"]) and grown.processes()
        grown.finish()
        check(pathlib.Path(folder, "optimizer.pt").exists(), f"{grown.events}")
        reference = session(first.replace("// %% first half\ntrain(0, 5);\n", LOAD) + GROW.split("// %% seeds")[1] + second, "-n", "4",
                            "--arg", f"folder={folder}")
        reference.finish()
    check(status_of(grown, "grow") == ["ok"] and status_of(grown, "second half") == ["ok"], f"{grown.events}")
    check(len(digests(grown)) == 1 and digests(grown) == digests(reference), f"{digests(grown)} {digests(reference)} {grown.events}")
    for own in ("statistics", "threads"):  # forwards begin with the statistics of rank 0
        lines = lines_by_rank(grown, own)
        check(sorted(lines) == [0, 1, 2, 3] and lines == lines_by_rank(reference, own), f"{lines} {lines_by_rank(reference, own)}")
    verified = [e for e in grown.of("finding") if e["inspector"] == "verify"]
    check(len(verified) == 2 and all(each["verdict"] == "ok" and each["ranks"] == [0, 1, 2, 3] for each in verified), f"{verified}")
    check([e["ranks"] for e in grown.of("session")] == [list(range(ranks)), [0, 1, 2, 3]], f"{grown.of('session')}")
    check_gone(everything)


def test_sgd_trains_on_as_with_four_from_the_start():
    train_on_with_more_than(2, SGD)


def test_adam_trains_on_where_a_rank_was_alone():
    train_on_with_more_than(1, ADAM)


NAMES = """// %% names
#include <csignal>
struct Point { int x, y; };
template <typename T> T doubled(T value) { return value + value; }
int kept = doubled(10 + rank);
auto loss = [] { auto t = torch::ones({1}); dist::all_reduce(t); return t; }();
auto pair = dist::new_group({0, 1});
auto everybody = dist::new_group();
ddp::DistributedSampler sampler(12, ddp::DistributedSamplerOptions().shuffle(false));
std::string numbers() {
  auto one = torch::ones({1});
  dist::all_reduce(one);
  return std::to_string(rank) + "/" + std::to_string(world_size) + " sum " + std::to_string(int(one.item<double>()));
}
void say(const std::string& what, const std::string& text) { std::cout << what + ": " + text + "\\n" << std::flush; }
// %% of one rank
%%rank 0
int own = 5;
// %% no such rank
%rank 3 rank
// %% grow
%dist_init -n 4
// %% has
say("has", numbers() + " kept " + std::to_string(kept) + " point " + std::to_string(Point{doubled(rank), 1}.x));
// %% share
sampler.reset();
std::ostringstream share;
const auto indices = *sampler.next(99);
for (size_t each : indices) share << each << " ";
say("share", share.str());
// %% lacks
%rank 3 own
// %% lacks
%rank 2 loss
// %% pair
auto sum = torch::ones({1});
if (dist::get_rank(pair) >= 0) dist::all_reduce(sum, dist::ReduceOp::SUM, pair);
say("pair", std::to_string(int(sum.item<double>())));
// %% group of all that were
auto of_all = torch::ones({1});
if (rank < 2) dist::all_reduce(of_all, dist::ReduceOp::SUM, everybody);
say("were", std::to_string(int(of_all.item<double>())));
// %% another group
if (rank == 3) dist::barrier(everybody);
// %% hang
if (rank != 3) dist::barrier();
// %% new group
auto last = dist::new_group({1, 3});
auto of_last = torch::full({1}, double(rank));
if (dist::get_rank(last) >= 0) dist::all_reduce(of_last, dist::ReduceOp::SUM, last);
say("new group", std::to_string(int(of_last.item<double>())));
// %% death
if (rank == 3) ::raise(SIGKILL);
// %% back
%restart 3
// %% old rank dies
if (rank == 1) ::raise(SIGKILL);
// %% it is back
%restart
// %% again
say("again", numbers() + " kept " + std::to_string(kept));
// %% fewer
%dist_init -n 1
// %% alone
say("alone", numbers());
// %% more
%dist_init -n 5
// %% five
say("five", numbers() + " kept " + std::to_string(kept));
"""


def test_new_ranks_have_what_all_ranks_have():
    run = session(NAMES, "-n", "2")
    run.finish()
    said = texts(run)
    expected = {
        "has": {rank: f"{rank}/4 sum 4 kept {2 * (10 + rank)} point {2 * rank}" for rank in range(4)},
        "share": {rank: f"{rank} {rank + 4} {rank + 8} " for rank in range(4)},
        "pair": {0: "2", 1: "2", 2: "1", 3: "1"},
        "were": {0: "2", 1: "2", 2: "1", 3: "1"},
        "new group": {0: "0", 1: "4", 2: "2", 3: "4"},
        "again": {rank: f"{rank}/4 sum 4 kept {2 * (10 + rank)}" for rank in range(4)},
        "alone": {0: "0/1 sum 1"},
        "five": {rank: f"{rank}/5 sum 5 kept {2 * (10 + rank)}" for rank in range(5)},
    }
    for what, lines in expected.items():
        check(lines_by_rank(run, what + ":") == {rank: [f"{what}: {line}"] for rank, line in lines.items()},
              f"{what}: {lines_by_rank(run, what + ':')} {run.events}")
    for rank in (2, 3, 4):
        check(f"rank {rank} is new: " in said, said)
    new = said.split("rank 3 is new")[1].split("\nrank 3 is back")[0]
    check("cell 1, line 5: it met other ranks" in new and "ran without it: cell 2" in new, said)
    check("rank 3 is back" in said and "rank 1 is back" in said, said)
    check(status_of(run, "lacks") == ["compile_error", "compile_error"], f"{run.events}")
    errors = "\n".join(e["message"] for e in run.of("error"))
    check("group_2 could not be connected: ranks 0-1 did not make a group of that name" in errors, errors)
    hangs = [e for e in run.of("finding") if e["inspector"] == "hang"]
    check([each["ranks"] for each in hangs] == [[3]] and "rank 3" in hangs[0]["message"], f"{hangs}")
    check("'3' names a rank that is not in the session" in errors, errors)
    check("'own' is not defined on rank 3" in errors and "'loss' is not defined on rank 2" in errors, errors)


ALIKE = """// %% alone
int before = 1;
// %% grow
%dist_init -n 3
// %% ranks
%ranks
// %% record
%record on
"""


def test_all_ranks_are_those_of_one_session():
    run = session(ALIKE, "-n", "1")
    run.finish()
    found = [(e["verdict"], e["ranks"]) for e in run.of("finding") if e["inspector"] == "ranks"]
    check(found == [("ok", [0, 1, 2])], f"{run.of('finding')}")
    errors = [e["message"] for e in run.of("error")]
    check(len(errors) == 1 and "a replay has the ranks of the start" in errors[0], f"rank 0 would be replayed as 1 of 1: {errors}")


KILLS = """// %% process of rank 0
#include <csignal>
#include <fstream>
if (rank == 0) std::ofstream(arg("folder") + "/process") << ::getpid();
// %% ends it
if (rank == 2) {
  int process = 0;
  std::ifstream(arg("folder") + "/process") >> process;
  ::kill(process, SIGKILL);
}
// %% grow
%dist_init -n 3
// %% back
%restart
// %% numbers
std::printf("number %d of %d\\n", rank, world_size); std::cout << std::flush;
"""


def test_an_old_rank_that_dies_meanwhile_keeps_its_place():
    with tempfile.TemporaryDirectory() as folder:
        run = session(KILLS, "-n", "2", "--arg", f"folder={folder}")
        check(run.finish() == 5, f"a rank has died: {run.events}")
    said = texts(run)
    check("rank 2 is new" in said and "cells run on ranks 1-2; %dist_init -n 3 starts what is missing" in said, said)
    check("default group of 2" not in said, f"nobody has asked for other numbers: {said}")
    check(lines_by_rank(run, "number") == {rank: [f"number {rank} of 3"] for rank in range(3)}, f"{run.events}")


LIMITS = """// %% start
int started = 1;
// %% none
%dist_init -n 0
// %% too many
%dist_init -n 100000
// %% as many
%dist_init -n 2
// %% nobody to copy from
%dist_init -n 2 --from 0
// %% not alive
%dist_init -n 3 --from 2
// %% still
std::printf("still %d\\n", world_size); std::cout << std::flush;
"""


def test_what_a_start_refuses_is_refused():
    run = session(LIMITS, "-n", "2")
    run.finish()
    errors = [e["message"] for e in run.of("error")]
    check("-n 0: a session has at least one rank" in errors[0], f"{errors}")
    check("-n 100000: " in errors[1] and ("memory" in errors[1] or "open files" in errors[1]), f"{errors}")
    check("2 ranks are running already" in texts(run), texts(run))
    check("--from copies to ranks that start" in errors[2] and "rank set" in errors[3], f"{errors}")
    check(lines_by_rank(run, "still") == {rank: ["still 2"] for rank in range(2)}, f"{run.events}")


def test_the_journal_of_a_session_that_grew_runs_again():
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, XDG_STATE_HOME=folder)
        script = pathlib.Path(folder, "grows.cpp")
        script.write_text("// %% one\nint one = 1;\n// %% grow\n%dist_init -n 3\n// %% says\n"
                          'std::printf("%d of %d\\n", rank + one, world_size); std::cout << std::flush;\n')
        checked = subprocess.run([LOCKSTEP, "check", str(script)], env=environment, capture_output=True, text=True)
        check(checked.returncode == 0, f"new ranks see what the others do: {checked}")
        command = [LOCKSTEP, "run", "--json", "-"]
        first = subprocess.run([*command, str(script), "-n", "2"], env=environment, capture_output=True, text=True)
        events = [json.loads(line) for line in first.stdout.splitlines()]
        (id,) = {e["id"] for e in events if e["event"] == "session"}
        again = subprocess.run([*command, "--journal", id], env=environment, capture_output=True, text=True)
    check(first.returncode == 0 and again.returncode == 0, f"{first} {again}")
    for run in (first, again):
        said = {e["text"] for e in map(json.loads, run.stdout.splitlines()) if e["event"] == "output"}
        check({"1 of 3\n", "2 of 3\n", "3 of 3\n"} <= said, f"{run}")


if __name__ == "__main__":
    sys.exit(run_tests(globals()))
