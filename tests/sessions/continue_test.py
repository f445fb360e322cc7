#!/usr/bin/env python3
"""Kills ranks, and goes on without them: %dist_continue. Usage: continue_test.py LOCKSTEP [TEST...]"""
import pathlib
import sys
import tempfile

from faults_test import check, check_gone, run_tests
from restart_test import ADAM, MODEL, SGD, lines_by_rank, session, status_of, texts

# Four ranks train, the lowest of those that will live keeps a checkpoint, rank LOST dies, and the others go on.
FIRST_HALF, SECOND_HALF = MODEL.split("DEATH")
TENSORS = """std::vector<torch::Tensor> tensors() {
  auto all = net->parameters();
  for (const auto& each : net->buffers()) all.push_back(each);
  return all;
}
"""
GO_ON = "// %% checkpoint\n" + TENSORS + """if (rank == KEEPS) {
  torch::save(tensors(), arg("folder") + "/net.pt");
  torch::save(optimizer, arg("folder") + "/optimizer.pt");
}
// %% death
if (rank == LOST) ::raise(SIGKILL);
// %% go on
%dist_continue
// %% seeds
set_seed(3 + rank);
"""
# A session that has one rank less loads the checkpoint, and takes the same steps.
LOAD = "// %% load\n" + TENSORS + """std::vector<torch::Tensor> saved;
torch::load(saved, arg("folder") + "/net.pt");
for (size_t i = 0; i < saved.size(); ++i) tensors()[i].data().copy_(saved[i]);
torch::load(optimizer, arg("folder") + "/optimizer.pt");
set_seed(3 + rank);
"""


def digests(run):
    return {line for event in run.of("output") for line in event["text"].splitlines() if line.startswith("digest")}


def train_on_without(lost, optimizer):
    first, second = (part.replace("OPTIMIZER", optimizer) for part in (FIRST_HALF, SECOND_HALF))
    with tempfile.TemporaryDirectory() as folder:
        go_on = GO_ON.replace("LOST", str(lost)).replace("KEEPS", "1" if lost == 0 else "0")
        fewer = session(first + go_on + second, "-n", "4", "--arg", f"folder={folder}")
        everything = fewer.until(lambda e: e["event"] == "cell") and fewer.processes()
        fewer.finish()
        check(pathlib.Path(folder, "optimizer.pt").exists(), f"{fewer.events}")
        reference = session(first.replace("// %% first half\ntrain(0, 5);\n", LOAD) + second, "-n", "3", "--arg", f"folder={folder}")
        reference.finish()
    check(status_of(fewer, "second half") == ["ok"], f"{fewer.events}")
    check(len(digests(fewer)) == 1 and digests(fewer) == digests(reference), f"{digests(fewer)} {digests(reference)}")
    # Each rank's own: forwards begin with those of rank 0.
    statistics = [lines_by_rank(run, "statistics") for run in (fewer, reference)]
    check(sorted(statistics[0]) == [rank for rank in range(4) if rank != lost], f"{fewer.events}")
    check([each for _, each in sorted(statistics[0].items())] == [each for _, each in sorted(statistics[1].items())], f"{statistics}")
    verified = [e for e in fewer.of("finding") if e["inspector"] == "verify"]
    check(len(verified) == 2 and all(each["verdict"] == "ok" for each in verified), f"{verified}")
    check_gone(everything)


def test_sgd_trains_on_as_with_one_rank_less():
    train_on_without(2, SGD)


def test_adam_trains_on_without_rank_0():
    train_on_without(0, ADAM)


NUMBERS = """// %% before
#include <csignal>
set_seed(1);
torch::nn::Linear net(4, 4);
auto model = ddp::DistributedDataParallel(net);
auto all = dist::default_group();
auto pair = dist::new_group({0, 3});
auto with_lost = dist::new_group({1, 2});
ddp::DistributedSampler sampler(12, ddp::DistributedSamplerOptions().shuffle(false));
int was = rank;
std::string numbers() {
  auto one = torch::ones({1});
  dist::all_reduce(one);
  auto of_first = torch::full({1}, double(was));
  dist::broadcast(of_first, 0);
  std::ostringstream text;
  text << rank << "/" << world_size << " " << dist::get_rank() << "/" << dist::get_world_size() << " sum " << one.item<double>()
       << " first " << of_first.item<double>();
  return text.str();
}
void say(const std::string& what, const std::string& text) { std::cout << what + ": " + text + "\\n" << std::flush; }
// %% death
if (rank == 1) ::raise(SIGKILL);
// %% refused
dist::barrier();
// %% go on
%dist_continue
// %% numbers
say("numbers", numbers());
// %% groups
auto last_two = dist::new_group({1, 2});
auto sum = torch::full({1}, double(was));
if (dist::get_rank(last_two) >= 0) dist::all_reduce(sum, dist::ReduceOp::SUM, last_two);
auto of_pair = torch::full({1}, double(was));
if (dist::get_rank(pair) >= 0) dist::all_reduce(of_pair, dist::ReduceOp::SUM, pair);
auto by_old_handle = torch::ones({1});
dist::all_reduce(by_old_handle, dist::ReduceOp::SUM, all);
std::ostringstream members;
for (int each : dist::get_process_group_ranks(pair)) members << each << ",";
say("groups", std::to_string(int(sum.item<double>())) + " " + std::to_string(int(of_pair.item<double>())) + " " +
                  std::to_string(int(by_old_handle.item<double>())) + " " + members.str());
// %% messages
auto got = torch::zeros({1});
if (rank == 2) dist::send(torch::full({1}, 7.0), 0);
if (rank == 0) say("message", std::to_string(dist::recv(got)) + " " + std::to_string(int(got.item<double>())));
// %% share
sampler.reset();
std::ostringstream share;
const auto indices = *sampler.next(99);
for (size_t each : indices) share << each << " ";
say("share", share.str());
// %% lost group
if (dist::get_rank(with_lost) >= 0) dist::barrier(with_lost);
// %% step
model(torch::ones({2, 4}) * (rank + 1)).sum().backward();
// %% verify
%verify net
%verify model
// %% a second death
if (was == 0) ::raise(SIGKILL);
// %% go on again
%dist_continue
// %% numbers again
say("again", numbers());
// %% nothing to do
%dist_continue
// %% one comes back
%restart 0
// %% three
%rank 0,2-3 say("three", numbers());
// %% all come back
%restart
// %% four
say("four", numbers());
"""


def test_ranks_count_anew_and_keep_their_names():
    run = session(NUMBERS, "-n", "4")
    run.finish()
    said = texts(run)
    expected = {
        "numbers": {0: "0/3 0/3 sum 3 first 0", 2: "1/3 1/3 sum 3 first 0", 3: "2/3 2/3 sum 3 first 0"},
        "groups": {0: "0 3 3 0,2,", 2: "5 2 3 0,2,", 3: "5 3 3 0,2,"},
        "message": {0: "2 7"},
        "share": {0: "0 3 6 9 ", 2: "1 4 7 10 ", 3: "2 5 8 11 "},
        "again": {2: "0/2 0/2 sum 2 first 2", 3: "1/2 1/2 sum 2 first 2"},
        "three": {0: "0/3 0/3 sum 3 first 0", 2: "1/3 1/3 sum 3 first 0", 3: "2/3 2/3 sum 3 first 0"},
        "four": {rank: f"{rank}/4 {rank}/4 sum 4 first 0" for rank in range(4)},
    }
    for what, lines in expected.items():
        check(lines_by_rank(run, what + ":") == {rank: [f"{what}: {line}"] for rank, line in lines.items()},
              f"{what}: {lines_by_rank(run, what + ':')} {run.events}")
    check("ranks 0,2-3 are the default group of 3 now" in said and "rank 2 is 1, rank 3 is 2" in said, said)
    errors = "\n".join(e["message"] for e in run.of("error"))
    check("%dist_continue" in errors, f"the refusal says what goes on: {errors}")
    check("group group_2 needs rank 1, which is lost" in errors, errors)
    verified = [e for e in run.of("finding") if e["inspector"] == "verify"]
    check(len(verified) == 2 and all(each["verdict"] == "ok" and each["ranks"] == [0, 2, 3] for each in verified), f"{verified}")
    check("ranks 2-3 are the default group of 2 now" in said, said)


COMES_BACK = """// %% start
int started = rank;
// %% alive
%dist_continue
// %% death
#include <csignal>
if (rank == 1) ::raise(SIGKILL);
// %% again in a new world
%dist_continue
int number = rank, size = world_size;
// %% a later death
if (rank == 1) ::raise(SIGKILL);
// %% back
%restart 2
// %% what it had
std::printf("had %d/%d\\n", number, size); std::cout << std::flush;
"""


def test_a_rank_that_comes_back_has_the_numbers_of_then():
    run = session(COMES_BACK, "-n", "3")
    run.finish()
    check("ranks 0-2 are the default group of 3 now" in texts(run), f"{run.events}")
    check(lines_by_rank(run, "had") == {0: ["had 0/2"], 2: ["had 1/2"]}, f"{lines_by_rank(run, 'had')} {run.events}")


SIZES = """// %% model
set_seed(1);
torch::nn::Linear net(4, 4);
auto model = ddp::DistributedDataParallel(net);
torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
int kept = rank;
void step() { sgd.zero_grad(); model(torch::ones({2, 4}) * (rank + 1)).sum().backward(); sgd.step(); }
// %% four
step();
// %% fewer
%dist_init -n 2
// %% two
step();
std::printf("two %d/%d kept %d\\n", rank, world_size, kept); std::cout << std::flush;
// %% more
%dist_init -n 4
// %% restored
ddp::restore(model, sgd, 0);
step();
std::printf("four %d/%d kept %d\\n", rank, world_size, kept); std::cout << std::flush;
// %% verify
%verify net
%verify sgd
"""


def test_the_number_of_ranks_changes():
    run = session(SIZES, "-n", "4")
    everything = run.until(lambda e: e["event"] == "cell") and run.processes()
    code = run.finish()
    check(code == 0, f"{code} {run.events}")
    check(lines_by_rank(run, "two") == {rank: [f"two {rank}/2 kept {rank}"] for rank in range(2)}, f"{run.events}")
    check(lines_by_rank(run, "four") == {rank: [f"four {rank}/4 kept {rank}"] for rank in range(4)}, f"{run.events}")
    verified = [e for e in run.of("finding") if e["inspector"] == "verify"]
    check(len(verified) == 2 and all(each["verdict"] == "ok" and each["ranks"] == [0, 1, 2, 3] for each in verified), f"{verified}")
    check_gone(everything)


if __name__ == "__main__":
    sys.exit(run_tests(globals()))
