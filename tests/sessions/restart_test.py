#!/usr/bin/env python3
"""Kills ranks, starts them again in their places, and trains on. Usage: restart_test.py LOCKSTEP [TEST...]"""
import os
import resource
import signal
import sys
import tempfile

from faults_test import Session, check, check_gone, run_tests

# Three ranks at least: the sum of two numbers does not depend on their order, so that nothing would show with two.
MODEL = """// %% model
#include <csignal>
struct Net : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(8, 64))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(64))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(64, 4))};
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::dropout(torch::relu(norm(in(x))), 0.2, is_training())); }
};
set_seed(7);
auto net = std::make_shared<Net>();
net->to(device);
auto model = ddp::DistributedDataParallel(net, ddp::Options().bucket_cap_mb(0.001));
OPTIMIZER
// %% functions
void train(int first, int last) {
  for (int step = first; step < last; ++step) {
    model.zero_grad();
    const auto x = torch::sin(torch::arange(64.0, device).reshape({8, 8}) * (1 + step + 100 * rank));
    model(x).square().mean().backward();
    optimizer.step();
  }
}
double statistics() { return net->norm->running_mean.sum().item<double>() + net->norm->running_var.sum().item<double>(); }
double digest() {
  double sum = 0;
  int i = 0;
  for (const auto& p : net->parameters()) sum += (p.to(torch::kCPU, torch::kDouble).flatten() * torch::sin(torch::arange(double(p.numel())) + ++i)).sum().item<double>();
  return sum;
}
// %% first half
train(0, 5);
DEATH// %% second half
train(5, 10);
// %% verify
%verify net
%verify optimizer
// %% what came of it
std::printf("digest %.17g\\n", digest());
std::printf("statistics %.17g\\n", statistics());
std::cout << std::flush;
"""

DEATH = """// %% death
if (rank == 2) ::raise(SIGKILL);
// %% back
%restart 2 --from 0
"""

SGD = "torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));"
ADAM = "torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(0.01));"


def session(script, *options):
    return Session(script, "--keep-going", *options)


def texts(run, kind="message"):
    return "\n".join(e.get("text", "") for e in run.of(kind))


def digest_of(run):
    found = {(line, tuple(e["ranks"])) for e in run.of("output") for line in e["text"].splitlines() if line.startswith("digest")}
    check(len(found) == 1, f"all ranks have one digest: {found} {run.events}")
    (digest, ranks), = found
    check(ranks == (0, 1, 2, 3), f"{ranks}")
    return digest


def status_of(run, title):
    return [e["status"] for e in run.of("cell") if e["title"] == title]


def train_with_a_death(optimizer, *options):
    """`options`: where the ranks run, for tests/cuda/device_sessions.py."""
    model = MODEL.replace("OPTIMIZER", optimizer)
    undisturbed = session(model.replace("DEATH", ""), "-n", "4", *options)
    undisturbed.finish()
    restarted = session(model.replace("DEATH", DEATH), "-n", "4", *options)
    everything = restarted.until(lambda e: e["event"] == "cell") and restarted.processes()
    restarted.finish()
    check(status_of(restarted, "second half") == ["ok"], f"{restarted.events}")
    check(digest_of(restarted) == digest_of(undisturbed), f"{digest_of(restarted)} {digest_of(undisturbed)}")
    # Each rank's own: forwards begin with those of rank 0.
    check(lines_by_rank(restarted, "statistics") == lines_by_rank(undisturbed, "statistics"), f"{restarted.events}")
    verified = [e for e in restarted.of("finding") if e["inspector"] == "verify"]
    check(len(verified) == 2 and all(each["verdict"] == "ok" for each in verified), f"{verified}")
    said = texts(restarted)
    check("rank 2 is back" in said, said)
    check("cell 3, line 1: it met other ranks" in said, said)
    check("cell 1" not in said.split("rank 2 is back")[1].split("from rank")[0], f"all of the model is made again: {said}")
    check_gone(everything)


def test_sgd_with_momentum_goes_on_bit_for_bit():
    train_with_a_death(SGD)


def test_adam_goes_on_bit_for_bit():
    train_with_a_death(ADAM)


GROUPS = """// %% groups
#include <csignal>
auto pair = dist::new_group({1, 2});
auto others = dist::new_group({0, 3});
auto sum = [](const dist::Group& group) {
  auto t = torch::full({1}, double(rank + 1));
  if (dist::get_rank(group) >= 0) dist::all_reduce(t, dist::ReduceOp::SUM, group);
  return t.item<double>();
};
auto loss = [] { auto t = torch::ones({1}); dist::all_reduce(t); return t; }();
int calls = 0;
auto left_out = [] { auto group = dist::new_group({0, 1}); dist::barrier(); return group; }();
auto behind = dist::new_group({1, 3});
// %% needs it
auto twice = loss * 2;
double thrice() { return loss.item<double>() * 3; }
++calls;
std::cout << "seen once" << std::endl;
#define FOURFOLD (loss * 4)
double operator""_losses(long double x) { return loss.item<double>() * double(x); }
std::vector<int> all;
for (const int each : dist::all_gather_object(rank)) all.push_back(each);
if (all.empty()) std::abort();
// %% fails on one rank
if (rank == 1) throw std::runtime_error("as expected");
// %% death
if (rank == 1) ::raise(SIGKILL);
// %% without it
%rank 0,2-3 int meanwhile = 1;
// %% dies again
%restart
// %% back
%restart
// %% groups again
std::printf("sums %g %g %g\\n", sum(pair), sum(others), sum(behind)); std::cout << std::flush;
// %% default group
dist::barrier();
std::cout << "calls " << calls << std::endl;
// %% missing
%rank 1 twice
// %% missing
%rank 1 thrice()
// %% missing
%rank 1 FOURFOLD
// %% missing
%rank 1 2.0_losses
// %% alive
%restart 1
// %% a second death
if (rank == 1) ::raise(SIGKILL);
// %% back again
%restart 1
// %% groups once more
std::printf("again %g %g %g\\n", sum(pair), sum(others), sum(behind)); std::cout << std::flush;
"""


def lines_by_rank(run, begin):
    found = {}
    for event in run.of("output"):
        for line in event["text"].splitlines():
            if line.startswith(begin):
                for rank in event["ranks"]:
                    found.setdefault(rank, []).append(line)
    return found


def test_groups_and_names_are_back():
    run = session(GROUPS, "-n", "4")
    run.finish()
    said = texts(run)
    for begin in ("sums", "again"):
        check(lines_by_rank(run, begin) == {0: [f"{begin} 1 5 1"], 1: [f"{begin} 5 2 6"], 2: [f"{begin} 5 3 3"], 3: [f"{begin} 4 5 6"]},
              f"{lines_by_rank(run, begin)} {run.events}")
    check(lines_by_rank(run, "calls") == {rank: ["calls 1"] for rank in range(4)}, f"{run.events}")
    check(lines_by_rank(run, "seen once") == {rank: ["seen once"] for rank in range(4)}, "what ran again is not shown again")
    check("cell 1, line 9: it met other ranks" in said, said)
    check("cell 1, line 11: it met other ranks" in said, "the group behind it has its number all the same: " + said)
    check("cell 2, line 1: it needs loss of cell 1" in said, said)
    check("cell 3, line 1: it had not ended there" in said, said)
    check("ran without it: cell 5" in said, said)
    check(status_of(run, "default group") == ["ok"] and status_of(run, "missing") == 4 * ["compile_error"], f"{run.events}")
    errors = "\n".join(e["message"] for e in run.of("error"))
    for name in ("twice", "thrice", "loss", 'operator""_losses'):
        check(f"'{name}' is not defined on rank 1" in errors, errors)
    check([e["where"] for e in run.of("error") if "as cell 2 ran again" in e["message"]] == ["cell 2, line 9"], f"{run.of('error')}")
    check("cell 2, line 9: the cell failed as it ran again" in said, said)
    check("rank 1 lives" in errors, errors)


SHARDS = """// %% shards
#include <csignal>
set_seed(1);
torch::nn::Linear net(4, 4);
auto shard = torch::full({4}, double(rank), torch::requires_grad());
torch::optim::Adam mine({shard}, torch::optim::AdamOptions(0.1));
torch::optim::SGD part(std::vector<torch::Tensor>{rank < 2 ? net->weight : net->bias}, torch::optim::SGDOptions(0.1).momentum(0.9));
for (int i = 0; i < 3; ++i) {
  shard.mutable_grad() = torch::ones({4});
  mine.step();
}
// %% death
if (rank == 2) ::raise(SIGKILL);
// %% back
%restart 2 --from 0
// %% the others keep theirs
std::printf("shard %d\\n", shard[0].item<double>() != double(rank)); std::cout << std::flush;
"""


COPIES = """// %% kept
#include <csignal>
#include <fstream>
#include <unistd.h>
int kept = 10 + rank;
std::string origin() {
  std::ifstream file("/proc/self/environ");
  const std::string own(std::istreambuf_iterator<char>(file), {});
  return own.find("LOCKSTEP_IDENTITY=") == std::string::npos ? "a copy" : "alone";
}
auto drawn = torch::rand({1}).item<double>();
// %% death
if (rank == 1) ::raise(SIGKILL);
// %% back
%restart
// %% look
%%rank 1
std::cout << "came back as " + origin() + " with " + std::to_string(kept) + "\\n" << std::flush;
while (::access(arg("released").c_str(), F_OK) != 0) usleep(1000);
// %% another death
if (rank == 1) ::raise(SIGKILL);
// %% back again
%restart
// %% look
%%rank 1
std::cout << "came back as " + origin() + " with " + std::to_string(kept) + "\\n" << std::flush;
// %% together
auto sum = torch::tensor({1.0});
dist::all_reduce(sum);
std::cout << "sum " << sum.item<double>() << std::endl;
std::cout << "drawn " + std::to_string(drawn) + "\\n" << std::flush;
"""


def test_a_rank_is_a_copy_of_what_ranks_are_copies_of_while_that_lives():
    run = session(COPIES, "-n", "2")
    check(run.until_text("came back as a copy with 11"), f"no copy: {run.events}")
    os.kill(run.starter(), signal.SIGKILL)
    run.release()
    everything = run.processes()
    run.finish()
    text = "".join(e.get("text", "") for e in run.of("output"))
    check("came back as alone with 11" in text, f"not back: {run.events}")
    check("sum 2\n" in text, f"the ranks are not connected: {run.events}")
    drawn = [e["ranks"] for e in run.of("output") if "drawn" in e.get("text", "")]
    check(drawn and [0, 1] not in drawn, f"ranks draw the same numbers: {drawn}")
    check_gone(everything)


def test_shards_are_named_as_lost():
    run = session(SHARDS, "-n", "3")
    run.finish()
    values = "\n".join(e["text"] for e in run.of("value"))
    check("lost: mine: the state that rank 2 held" in values, f"{values} {run.events}")
    check("lost: part: the state that rank 2 held" in values, values)
    check("net: 2 tensors" in values, values)
    shards = lines_by_rank(run, "shard")
    check(shards == {rank: ["shard 1"] for rank in range(3)}, f"{shards}")


CORE = """// %% death
#include <filesystem>
#include <sys/resource.h>
std::filesystem::current_path("FOLDER");
rlimit limit;
::getrlimit(RLIMIT_CORE, &limit);
limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 1 << 20);
::setrlimit(RLIMIT_CORE, &limit);
if (rank == 1) std::abort();
"""


def leaves_core(folder):
    """Whether the system writes a core file, or gives it to a program."""
    pid = os.fork()
    if pid == 0:
        os.chdir(folder)
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (1 << 20 if hard < 0 else min(hard, 1 << 20), hard))
        os.abort()
    return os.WCOREDUMP(os.waitpid(pid, 0)[1])


def test_a_death_names_the_core_file():
    with tempfile.TemporaryDirectory() as folder:
        run = session(CORE.replace("FOLDER", folder), "-n", "2")
        run.finish()
        (error,) = run.of("error")
        check(error["type"] == "SIGABRT" and ("; its core " in error["message"]) == leaves_core(folder), f"{error}")


if __name__ == "__main__":
    sys.exit(run_tests(globals()))
