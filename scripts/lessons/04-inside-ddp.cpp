// %% [markdown]
// # Inside DistributedDataParallel
//
// What the wrapper does between `backward()` and the optimizer's step, and what its options change: each with a number to look at.
//
//     lockstep run scripts/lessons/04-inside-ddp.cpp -n 2

// %% a model of a few layers

#include <chrono>
#include <torch/csrc/distributed/c10d/reducer.hpp>

struct Net : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(64, 256))};
  torch::nn::Linear middle{register_module("middle", torch::nn::Linear(256, 256))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(256, 10))};
  torch::nn::Linear spare{register_module("spare", torch::nn::Linear(256, 10))};
  bool use_spare = true;

  torch::Tensor forward(const torch::Tensor& x) {
    auto y = torch::relu(middle(torch::relu(first(x))));
    return use_spare ? last(y) + spare(y) : last(y);
  }
};

torch::Tensor batch() { return torch::randn({32, 64}); }

template <typename Wrapped>
void step(Wrapped& net) {
  net.zero_grad();
  net(batch()).square().mean().backward();
}

// Collectives of this rank so far: how much the ranks have talked.
int64_t collectives() { return static_cast<int64_t>(get("pg")->getBackend(c10::DeviceType::CPU)->getSequenceNumberForGroup()); }

double largest_difference_between_ranks(const torch::Tensor& mine) {
  auto all = dist::all_gather(mine.contiguous());
  double largest = 0;
  for (auto& theirs : all) largest = std::max(largest, (theirs - mine).abs().max().item<double>());
  return largest;
}

// %% [markdown]
// ## Buckets
// Gradients are not reduced one by one, which would be slow, nor all at once, which could not begin before the last one is there. They go in *buckets*. Backward
// produces gradients from the last layer to the first, so the first bucket holds the last layers. Before the first step the order is not known, so there is
// one bucket; after it they are rebuilt in the order in which gradients came.

// %% one bucket before the first step, several after it
set_seed(rank);  // no need for equal seeds: the wrapper gives all ranks rank 0's values
auto net = ddp::DistributedDataParallel(std::make_shared<Net>(), ddp::Options().bucket_cap_mb(0.05));
show(net.buckets().size());
step(net);
step(net);
show(net.buckets().size());
for (const auto& bucket : net.buckets()) show(bucket.parameters);
if (net.buckets().size() < 2) throw std::runtime_error("the buckets were not rebuilt");

// %% the replicas are equal, and so are the reduced gradients
if (largest_difference_between_ranks(net->first->weight.detach()) != 0) throw std::runtime_error("replicas differ");
if (largest_difference_between_ranks(net->first->weight.grad()) != 0) throw std::runtime_error("gradients differ");
net.steps()

// %% [markdown]
// ## Overlap
// While a bucket travels, backward goes on with the layers before. What the record of c10d says, in nanoseconds: how long backward computed, how long buckets were
// on their way, and for how long both at once.

// %% what the Logger saw
for (int i = 0; i < 5; ++i) step(net);
auto record = net.logging_data();
const bool overlap_recorded = record.ints_map.count("avg_backward_compute_comm_overlap_time") > 0;
overlap_recorded

// %% [markdown]
// ## gradient_as_bucket_view
// Without it there is a gradient and its copy in a bucket. With it they are the same memory: one copy of the gradients less.

// %% the gradient lies in the bucket
auto views = ddp::DistributedDataParallel(std::make_shared<Net>(), ddp::Options().gradient_as_bucket_view(true));
step(views);
const auto gradient_buckets = views.reducer() ? views.reducer()->get_grad_buckets(false) : std::vector<c10d::GradBucket>();
for (const auto& bucket : gradient_buckets) {
  if (!views->last->bias.grad().is_alias_of(bucket.getBuffer())) throw std::runtime_error("it is a copy");
}
gradient_buckets.size()

// %% [markdown]
// ## Unused parameters
// Every bucket waits for all of its gradients. A parameter that takes no part in the loss never has one, so the reduction never ends, and the next forward says
// so. (With one rank nothing is reduced, so nothing is missed.)

// %% the next forward names them
net->use_spare = false;
step(net);
std::string message;
try {
  step(net);
} catch (const std::exception& error) {
  message = error.what();
}
if (world_size > 1 && message.find("spare.weight, spare.bias") == std::string::npos) throw std::runtime_error("not named: " + message);
message.substr(0, 100)

// %% find_unused_parameters looks for them in each graph
auto searching = ddp::DistributedDataParallel(std::make_shared<Net>(), ddp::Options().find_unused_parameters(true));
for (int i = 0; i < 3; ++i) {
  searching->use_spare = i != 1;
  step(searching);
}
searching.check_reducer_finalized();

// %% static_graph learns them once
auto fixed = ddp::DistributedDataParallel(std::make_shared<Net>(), ddp::Options().static_graph(true));
fixed->use_spare = false;
for (int i = 0; i < 3; ++i) step(fixed);
fixed.check_reducer_finalized();

// %% after a step that failed, start afresh
net.reset();
net->use_spare = true;
step(net);
largest_difference_between_ranks(net->spare->bias.grad())

// %% [markdown]
// ## no_sync: fewer collectives
// Four micro-batches, reduced each time or once.

// %% count them
int64_t counted[2];
for (int way = 0; way < 2; ++way) {
  net.zero_grad();
  const int64_t before = collectives();
  for (int micro = 0; micro < 4; ++micro) {
    net.require_backward_grad_sync(way == 0 || micro == 3);
    (net(batch()).square().mean() / 4).backward();
  }
  counted[way] = collectives() - before;
}
net.require_backward_grad_sync(true);
if (world_size > 1 && counted[0] != 4 * counted[1]) throw std::runtime_error("four times the collectives were expected");
show(counted[0]);
show(counted[1]);

// %% [markdown]
// ## Communication hooks
// A hook takes over the reduction of a bucket. This one sends half as many bytes, and what is lost is in the last bits.

// %% half precision on the wire
set_seed(5);
auto exact = ddp::DistributedDataParallel(std::make_shared<Net>());
set_seed(5);
auto compressed = ddp::DistributedDataParallel(std::make_shared<Net>());
compressed.register_comm_hook(ddp::fp16_compress_hook());
set_seed(6 + rank);
step(exact);
set_seed(6 + rank);
step(compressed);
const double lost = (exact->middle->weight.grad() - compressed->middle->weight.grad()).abs().max().item<double>();
if (lost > 1e-4) throw std::runtime_error("too much was lost");
lost

// %% a hook of your own: how large is each bucket?
auto watched = ddp::DistributedDataParallel(std::make_shared<Net>(), ddp::Options().bucket_cap_mb(0.05));
auto plain = ddp::allreduce_hook();
std::vector<int64_t> sizes;
watched.register_comm_hook([&](ddp::GradBucket& bucket) {
  sizes.push_back(bucket.getBuffer().numel());
  return plain.run(bucket);
});
step(watched);
step(watched);
sizes

// %% [markdown]
// ## Mixed precision
// Forward and backward in bfloat16, the optimizer in float: parameters are float again when backward ends.

// %% low precision inside, full precision outside
auto mixed = ddp::DistributedDataParallel(
    std::make_shared<Net>(), ddp::Options().mixed_precision(ddp::MixedPrecision().param_dtype(torch::kBFloat16).reduce_dtype(torch::kFloat)));
mixed.zero_grad();
auto low = mixed(batch());
show(low.dtype());
low.to(torch::kFloat).square().mean().backward();
mixed->first->weight.dtype()

// %% [markdown]
// ## Scaling
// *Strong*: the same work on N ranks, T₁ / (N·T_N). *Weak*: N times the work, T₁ / T_N. One is ideal. Ranks that share cores, as here, show what sharing costs and not
// what more machines would bring.

// %% strong scaling, this machine
double seconds_of(const std::function<void()>& work) {
  for (int i = 0; i < 3; ++i) work();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 10;
}
auto local = std::make_shared<Net>();
const double together = seconds_of([&] {
  net.zero_grad();
  net(torch::randn({256 / world_size, 64})).square().mean().backward();
});
dist::barrier();
double alone = 0;
if (rank == 0) {
  alone = seconds_of([&] {
    local->zero_grad();
    local->forward(torch::randn({256, 64})).square().mean().backward();
  });
}
dist::barrier();
auto measured = torch::tensor({alone, together});
dist::broadcast(measured, 0);
const double efficiency = measured[0].item<double>() / (world_size * measured[1].item<double>());
efficiency > 0
