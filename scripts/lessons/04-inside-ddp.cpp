// %% [markdown]
// # Inside DistributedDataParallel
//
// What the wrapper does between `backward()` and the optimizer's step, and what its options change. Each with a number to look at.
//
//     lockstep run scripts/lessons/04-inside-ddp.cpp -n 2

// %% a model with a spare layer
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

std::shared_ptr<Net> make_net() {
  if (world_size < 2) throw std::runtime_error("one rank has nothing to reduce: run this lesson with -n 2 or more");
  auto net = std::make_shared<Net>();
  net->to(device);
  return net;
}

// %% a step, and two things to look at
template <typename Wrapped>
void step(Wrapped& net) {
  net.zero_grad();
  net(torch::randn({32, 64}, device)).square().mean().backward();
}

int64_t collectives() {  // of this rank so far, out of its collective log
  return get("pg")->getDefaultBackend()->getSequenceNumberForGroup();
}

double largest_difference(const torch::Tensor& mine) {  // between this rank and any other
  double largest = 0;
  for (const auto& theirs : dist::all_gather(mine)) largest = std::max(largest, (theirs - mine).abs().max().item<double>());
  return largest;
}

// %% [markdown]
// ## Buckets
// To reduce gradients one by one would be slow: each message has its price. To reduce them all at once could not begin before the last one is there. So they go in
// *buckets*. Backward produces gradients from the last layer to the first, so the first bucket holds the last layers. The order is not known before the first
// step: until then there is one bucket, and after it the buckets are made anew, in the order in which gradients came.

// %% one bucket before the first step, several after it
set_seed(rank);  // no need for equal seeds: the wrapper gives all ranks rank 0's values
auto net = ddp::DistributedDataParallel(make_net(), ddp::Options().bucket_cap_mb(0.05));
std::cout << net.buckets().size() << " bucket before the first step\n";
step(net);
step(net);
for (const auto& bucket : net.buckets()) {
  std::cout << "bucket " << bucket.index << ", " << bucket.bytes << " bytes:";
  for (const auto& name : bucket.parameters) std::cout << ' ' << name;
  std::cout << '\n';
}
if (net.buckets().size() < 2) throw std::runtime_error("the buckets were not made anew");

// %% replicas and reduced gradients are equal, bit by bit
if (largest_difference(net->first->weight.detach()) != 0) throw std::runtime_error("replicas differ");
if (largest_difference(net->first->weight.grad()) != 0) throw std::runtime_error("gradients differ");
net.steps()

// %% the cap decides how many there are
std::map<double, size_t> buckets_with_cap;
for (double megabytes : {0.001, 0.05, 25.0}) {
  auto capped = ddp::DistributedDataParallel(make_net(), ddp::Options().bucket_cap_mb(megabytes));
  step(capped);
  step(capped);
  buckets_with_cap[megabytes] = capped.buckets().size();
}
buckets_with_cap

// %% [markdown]
// **Exercise 1.** Small buckets begin to travel earlier. Why not make them all as small as can be?
//
// <details><summary>Answer</summary>
//
// Each bucket is a collective, and each collective takes a time that does not depend on its size: tens of microseconds between processes of one machine, more over a network. With
// two hundred buckets that time is all there is. Large buckets waste nothing on it, but the last one is sent when there is nothing left to compute. 25 MB is a
// compromise for fast networks; it is worth measuring on yours.
//
// </details>
//
// ## Overlap
// While a bucket travels, backward goes on with the layers before. c10d keeps a record of it: how long backward computed, how long buckets were on their way, and for how
// long both at once.

// %% what c10d saw
for (int i = 0; i < 5; ++i) step(net);
auto record = net.logging_data();
const auto milliseconds = [](const char* name) { return record.ints_map.at(name) * 1e-6; };
std::cout << std::fixed << std::setprecision(2) << "backward " << milliseconds("avg_backward_compute_time") << " ms, reduction "
          << milliseconds("avg_backward_comm_time") << " ms, both at once "
          << milliseconds("avg_backward_compute_comm_overlap_time") << " ms\n";

// %% [markdown]
// ## gradient_as_bucket_view
// Without it there is each gradient, and its copy in a bucket. With it the two are the same memory: one copy of the gradients less, and no copying.

// %% gradients outside of the buckets, in bytes
int64_t bytes_outside_of_buckets(const ddp::DistributedModule& net) {
  int64_t bytes = 0;
  for (const auto& parameter : net.parameters()) {
    const auto& gradient = parameter.grad();
    if (gradient.storage().nbytes() == gradient.nbytes()) bytes += gradient.nbytes();  // memory of its own
  }
  return bytes;
}
auto copies = ddp::DistributedDataParallel(make_net());
auto views = ddp::DistributedDataParallel(make_net(), ddp::Options().gradient_as_bucket_view(true));
step(copies);
step(views);
if (bytes_outside_of_buckets(views) != 0) throw std::runtime_error("a gradient is not in its bucket");
show(bytes_outside_of_buckets(copies));
bytes_outside_of_buckets(views)

// %% [markdown]
// ## Unused parameters
// A bucket waits for all of its gradients. A parameter that takes no part in the loss never has one, so the reduction never ends. The next forward says so, and names it.

// %% the next forward names them
net->use_spare = false;
step(net);
std::string message;
try {
  step(net);
} catch (const std::exception& error) {
  message = error.what();
}
if (message.find("spare.weight, spare.bias") == std::string::npos) throw std::runtime_error("not named: " + message);
message.substr(message.find("gave no gradient"), 90)

// %% after a step that failed, start afresh
net.reset();
net->use_spare = true;
step(net);
largest_difference(net->spare->bias.grad())

// %% find_unused_parameters looks for them in each graph
auto searching = ddp::DistributedDataParallel(make_net(), ddp::Options().find_unused_parameters(true));
searching->use_spare = false;
for (int i = 0; i < 2; ++i) step(searching);
searching.check_reducer_finalized();

// %% static_graph learns them once
auto fixed = ddp::DistributedDataParallel(make_net(), ddp::Options().static_graph(true));
fixed->use_spare = false;
for (int i = 0; i < 3; ++i) step(fixed);
fixed.check_reducer_finalized();

// %% [markdown]
// **Exercise 2.** Which of the two would you choose for a model that skips layers at random, and which for one with a head that is never trained?
//
// <details><summary>Answer</summary>
//
// At random: `find_unused_parameters`, which walks through every graph, and pays for it every time. A head that is never trained is the same in every step:
// `static_graph` learns it in the first one. Cheaper than both: `requires_grad_(false)` before wrapping, or its name in `ignored_parameters`.
//
// </details>
//
// ## no_sync: fewer collectives
// Four micro-batches, reduced each time, or once at the end.

// %% count them
step(net);  // the buckets are made anew in the second step after a reset, which is a collective, too
step(net);
int64_t collectives_of_window(int first_synchronised) {
  net.zero_grad();
  const int64_t before = collectives();
  for (int micro = 0; micro < 4; ++micro) {
    net.require_backward_grad_sync(micro >= first_synchronised);
    (net(torch::randn({32, 64}, device)).square().mean() / 4).backward();
  }
  net.require_backward_grad_sync(true);
  return collectives() - before;
}
const int64_t every_time = collectives_of_window(0);
const int64_t once = collectives_of_window(3);
if (every_time != 4 * once) throw std::runtime_error("four times the collectives were expected");
show(every_time, "every time");
show(once, "once");

// %% [markdown]
// ## Communication hooks
// A hook takes over the reduction of a bucket. This one sends 16 bits for each number: half as many bytes, and what is lost is in the last digits.

// %% half precision on the wire
double lost_with(ddp::CommHook hook) {
  set_seed(5);
  auto exact = ddp::DistributedDataParallel(make_net());
  set_seed(5);
  auto hooked = ddp::DistributedDataParallel(make_net());
  hooked.register_comm_hook(hook);
  set_seed(6 + rank);
  step(exact);
  set_seed(6 + rank);
  step(hooked);
  const auto& wanted = exact->middle->weight.grad();
  return (wanted - hooked->middle->weight.grad()).norm().item<double>() / wanted.norm().item<double>();
}
const double lost = lost_with(ddp::fp16_compress_hook());
if (lost > 1e-3) throw std::runtime_error("too much was lost: " + std::to_string(lost));
lost < 1e-3

// %% PowerSGD sends two thin matrices in place of each gradient
auto power = std::make_shared<ddp::PowerSGDState>(ddp::PowerSGDOptions().matrix_approximation_rank(2).start_powerSGD_iter(2));
auto thin = ddp::DistributedDataParallel(make_net());
thin.register_comm_hook(ddp::powerSGD_hook(power));
for (int i = 0; i < 6; ++i) step(thin);
const auto stats = power->compression_stats();
if (stats.rate < 10) throw std::runtime_error("it did not compress");
std::cout << stats.before << " numbers sent as " << stats.after << ": " << std::fixed << std::setprecision(1) << stats.rate << " times less\n";

// %% a hook of your own: how large is each bucket?
auto watched = ddp::DistributedDataParallel(make_net(), ddp::Options().bucket_cap_mb(0.05));
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
// **Exercise 3.** `noop_hook` sends nothing. Why would anyone want it, and why never in training? Try `lost_with(ddp::noop_hook())`.
//
// <details><summary>Answer</summary>
//
// A step with it costs what the wrapper costs without communication, so the difference to a real step is the communication that backward could not hide.
// Gradients stay as they are on each rank: the replicas part at once.
//
// </details>

// %% gradients of one rank alone are not the mean
const double far_off = lost_with(ddp::noop_hook());
if (far_off < 0.01) throw std::runtime_error("this hook was to send nothing");
far_off > 0.01

// %% [markdown]
// ## Mixed precision
// Parameters in bfloat16 for forward and backward, in float for the optimizer: they are float again when backward ends.

// %% low precision inside, full precision outside
auto mixed = ddp::DistributedDataParallel(
    make_net(), ddp::Options().mixed_precision(ddp::MixedPrecision().param_dtype(torch::kBFloat16).reduce_dtype(torch::kFloat)));
mixed.zero_grad();
auto low = mixed(torch::randn({32, 64}, device));
show(low.dtype(), "output");
low.to(torch::kFloat).square().mean().backward();
show(mixed->first->weight.grad().dtype(), "gradient");
mixed->first->weight.dtype()

// %% [markdown]
// ## Buffers
// Running statistics of a BatchNorm are no parameters: nobody averages them. Before each forward all ranks take rank 0's, unless `broadcast_buffers` is off.
// Statistics over the whole batch, and not of one rank's part, are what `convert_sync_batchnorm` is for.

// %% the mean that a BatchNorm remembers, with each
double mean_of_ranks_apart(bool synchronised) {
  torch::nn::BatchNorm1d norm(4);
  norm->to(device);
  if (synchronised) ddp::convert_sync_batchnorm(*norm);
  auto wrapped = ddp::DistributedDataParallel(norm);
  wrapped(torch::full({8, 4}, rank, device) + torch::randn({8, 4}, device)).sum().backward();
  return largest_difference(norm->running_mean);
}
show(mean_of_ranks_apart(true));
if (mean_of_ranks_apart(true) != 0 || mean_of_ranks_apart(false) == 0) throw std::runtime_error("statistics of which batch?");

// %% [markdown]
// ## Scaling
// *Strong* scaling: the same work on N ranks, T₁ / (N·T_N). *Weak* scaling: N times the work, T₁ / T_N. One is ideal. Ranks that share cores, as here, show what sharing costs and
// not what more machines would bring.

// %% a stopwatch
#include <chrono>

double seconds_of(const std::function<void()>& work) {
  for (int i = 0; i < 3; ++i) work();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 10;
}

double seconds_together(int64_t rows_of_each) {
  auto net = ddp::DistributedDataParallel(make_net());
  const auto x = torch::randn({rows_of_each, 64}, device);
  return seconds_of([&] {
    net.zero_grad();
    net(x).square().mean().backward();
  });
}

// %% one rank alone, while the others wait
constexpr int64_t kRows = 512;
auto alone = torch::zeros({1}, torch::kDouble);
if (rank == 0) {
  auto local = make_net();
  const auto x = torch::randn({kRows, 64}, device);
  alone[0] = seconds_of([&] {
    local->zero_grad();
    local->forward(x).square().mean().backward();
  });
}
dist::broadcast(alone, 0);

// %% efficiency on this machine
const double t1 = alone.item<double>(), strong = seconds_together(kRows / world_size), weak = seconds_together(kRows);
if (rank == 0)
  std::cout << std::fixed << std::setprecision(2) << "strong " << t1 / (world_size * strong) << ", weak " << t1 / weak << " on " << world_size
            << " ranks of one machine\n";

// %% [markdown]
// **Exercise 4.** `t1` was measured while the other ranks waited in a `broadcast`. Why does that matter, and what would have made it matter more?
//
// <details><summary>Answer</summary>
//
// One rank alone may use what the ranks share: caches, memory bandwidth, the clock that a processor raises while its other cores rest. So one rank is faster than each of several
// would be even without communication, and the efficiency looks worse than the communication alone makes it. It would matter more if the waiting ranks did
// not sleep but looked again and again whether the message has come, as NCCL does on a GPU.
//
// </details>
//
// ## What you have now
// Buckets in the order of backward; one collective each, hidden behind what is left to compute; gradients that can live in the buckets; a search for what is unused, or a
// graph that is fixed; fewer collectives with `no_sync`, fewer bytes with hooks. `docs/ddp.md` has every option.
