// Inspectors that show tables, as a session has them. What they measure is checked by their own tests; here it is that magics reach
// them, that names of the session are found, and that training goes on.

// %% ranks agree
%ranks

// %% another environment on one rank tags=["expects-finding=ranks:mismatch"]
if (rank == 1) setenv("NCCL_ALGO", "Ring", 1);
%ranks

// %% a wrapper
unsetenv("NCCL_ALGO");
%timeline on
%memory on
set_seed(1);
torch::nn::Sequential module(torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 8));
auto net = ddp::DistributedDataParallel(module, ddp::Options().bucket_cap_mb(0.01));
torch::optim::Adam optimizer(net.parameters());
set_seed(rank);
auto step = [&] {
  optimizer.zero_grad();
  net.forward_as<torch::Tensor>(torch::randn({16, 64})).pow(2).mean().backward();
  inspect::step(optimizer);
};
for (int i = 0; i < 4; ++i) step();

// %% times, and everything is put back
const auto before = net.parameters()[0].detach().clone();

%time_sync step --steps 3 --straggler=1.5
if (!torch::equal(before, net.parameters()[0])) throw std::runtime_error("time_sync has changed a parameter");
if (net.steps() != 4) throw std::runtime_error("time_sync has left its steps in the count");

// %% buckets, memory
%buckets net
for (const auto& each : inspect::buckets(net, inspect::BucketsOptions().publish(false)).ranks)
  if (each.buckets.empty() || !each.buckets[0].start) throw std::runtime_error("when a bucket was reduced is not known");
%memory
%memory net optimizer
%memory off

// %% a trace of all
%timeline off
%timeline looking-trace.json

// %% the trace is there
%%rank [0]
#include <filesystem>
#include <fstream>
{
  const auto events = nlohmann::json::parse(std::ifstream("looking-trace.json")).at("traceEvents");
  if (events.size() < 100) throw std::runtime_error("the trace has few events");
  if (std::none_of(events.begin(), events.end(), [](const auto& each) { return each.value("cat", "") == "bucket"; }))
    throw std::runtime_error("the trace has no buckets");
}
std::filesystem::remove("looking-trace.json");

// %% the replicas are equal
%verify net optimizer

// %% saved replicas, equal and not tags=["expects-finding=verify:mismatch"]
torch::save(module, "looking-replica-" + std::to_string(rank) + ".pt");
%verify --files looking-replica-0.pt looking-replica-0.pt
{
  torch::NoGradGuard guard;
  module->parameters()[1][5] += rank;
}
torch::save(module, "looking-replica-" + std::to_string(rank) + ".pt");
dist::barrier();
%verify --files looking-replica-0.pt looking-replica-1.pt

// %% nothing stays behind
std::filesystem::remove("looking-replica-" + std::to_string(rank) + ".pt");
