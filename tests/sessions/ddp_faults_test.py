#!/usr/bin/env python3
"""Interrupts and kills ranks in the middle of a backward of DistributedDataParallel. Usage: ddp_faults_test.py LOCKSTEP [TEST...]"""
import os
import signal
import sys

from faults_test import Session, check, check_gone, run_tests

MODEL = """// %% model
#include <unistd.h>
struct Net : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(8, 16))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(16, 4))};
  std::function<void()> in_backward = [] {};
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = torch::relu(in(x));
    y.register_hook([this](torch::Tensor) { in_backward(); });
    return out(y);
  }
};
auto net = ddp::DistributedDataParallel(std::make_shared<Net>(), ddp::Options().bucket_cap_mb(0.0001));
torch::optim::SGD optimizer(net->parameters(), 0.1);
void train(int steps, const dist::Group& group = {}) {
  for (int i = 0; i < steps; ++i) {
    net.zero_grad();
    net(torch::randn({4, 8})).square().mean().backward();
    optimizer.step();
  }
  for (const auto& other : dist::all_gather(net->in->weight.detach(), group))
    if (!torch::equal(other, net->in->weight)) throw std::runtime_error("replicas differ");
}
train(3);
// %% stuck
if (rank == 1) net->in_backward = [] {
  std::cout << "in backward " << getpid() << std::endl;
  for (;;) ::sleep(1000);
};
train(1);
"""

GO_ON = """// %% go on
net->in_backward = [] {};
net.sync_module_states();
train(3);
std::cout << "trained on" << std::endl;
"""

# The default group needs the rank that is lost, and says so; a group of the others does not.
WITHOUT_RANK_1 = """// %% the old group
train(1);
// %% a new one
const auto rest = dist::new_group({0, 2});
net.update_process_group(rest);
net.sync_module_states();
train(3, rest);
std::cout << "trained on" << std::endl;
"""


def ranks_that_trained_on(session):
    return sorted(rank for event in session.of("output") if "trained on" in event.get("text", "") for rank in event["ranks"])


def test_interrupt_in_backward():
    session = Session(MODEL + GO_ON, "-n", "3", "--keep-going", "--cell-timeout", "5")
    check(session.until_text("in backward"), "the cell did not run")
    everything = session.processes()
    session.finish()
    stuck = [e for e in session.of("cell") if e["title"] == "stuck"]
    check(stuck and stuck[0]["status"] == "timeout", f"{stuck}")
    check(ranks_that_trained_on(session) == [0, 1, 2], f"{session.events}")
    check_gone(everything)


def test_kill_in_backward():
    session = Session(MODEL + WITHOUT_RANK_1, "-n", "3", "--keep-going")
    line = session.until_text("in backward")
    check(line, "the cell did not run")
    victim = int(line["text"].split("in backward ")[1].split()[0])
    everything = session.processes()
    os.kill(victim, signal.SIGKILL)
    # Well within the half hour after which a collective would give up by itself.
    cell = session.until(lambda e: e["event"] == "cell")
    check(cell and cell["status"] == "dead", f"{cell}")
    consequences = [e for e in session.of("error") if 1 not in e["ranks"]]
    check(sorted(rank for e in consequences for rank in e["ranks"]) == [0, 2], f"{session.of('error')}")
    for error in consequences:
        check(not error["root_cause"], f"{error}")
        check("rank 1" in error["message"] and "all_reduce" in error["message"], f"who, and in what: {error}")
        check("cell 1" in error["where"], f"where: {error}")
    code = session.finish()
    check(code == 5, f"exit code {code}")
    refused = [e for e in session.of("error") if "%dist_continue" in e["message"]]
    check(refused and "rank 1" in refused[0]["message"], f"what to do without rank 1: {session.of('error')}")
    check(ranks_that_trained_on(session) == [0, 2], f"{session.events}")
    check_gone(everything)


if __name__ == "__main__":
    sys.exit(run_tests(globals()))
