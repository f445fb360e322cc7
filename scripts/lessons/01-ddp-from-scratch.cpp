// %% [markdown]
// # Data-parallel training from scratch
//
// Distributed data parallelism (DDP) is one idea: every rank holds a full copy of the model, a *replica*, and trains it on its own part of the
// data; before each step the ranks average their gradients, so that every replica takes the same step. In this lesson you build it in four
// versions, break it on purpose, and learn to see that it is broken.
//
// Every cell below runs on all ranks at once, unless it says otherwise. Run it without changes:
//
//     lockstep run scripts/lessons/01-ddp-from-scratch.cpp -n 2
//
// or start `lockstep -n 2` and type the cells one by one, which is how it is meant. Two ranks will do; more work as well.

// %% start the ranks
%dist_init

// %% [markdown]
// ## Who am I?
// The ranks run the same code. What makes them different is a number, and these names are there without an include: `rank`, `world_size`,
// `local_rank`, `node_rank`, `device`, and `get(…)` with the short names that the process group uses.
//
// Values that are equal on all ranks are shown once. Values that differ are shown rank by rank.

// %% the world size: the same everywhere
if (world_size < 2)
  throw std::runtime_error("this lesson compares replicas, so it needs two ranks or more: run it with -n 2");
get("ws")

// %% the rank: different everywhere
get("rank")

// %% the rank in the whole session, and on this machine
show(get("grank"), "in the session");
show(get("lrank"), "on this machine");

// %% [markdown]
// **Exercise 1.** On one machine `rank` and `local_rank` are the same number, and much code uses one where it means the other. Two machines run
// four ranks each. What are `rank`, `local_rank` and `node_rank` of the second process on the second machine? Which one picks the GPU, which one
// decides who writes the checkpoint, which one picks the part of the data?
//
// The next cell checks an answer. At a prompt, define `int rank_there`, `local_rank_there` and `node_rank_there`, then type `%check second_machine`.
//
// <details><summary>Answer</summary>
//
// `rank` 5, `local_rank` 1, `node_rank` 1. The GPU goes by `local_rank` (there is no GPU number 5 in a machine that has four). The checkpoint and
// the data go by `rank`: with `local_rank`, two processes would write the same file, and each part of the data would be read twice.
//
// </details>

// %% the check of exercise 1
%%check second_machine
TORCH_CHECK(node_rank_there == 1, "node_rank counts machines, from 0");
TORCH_CHECK(local_rank_there == 1, "local_rank counts the processes of one machine, from 0");
TORCH_CHECK(rank_there == 4 * node_rank_there + local_rank_there, "rank counts all processes: four are on the first machine");

// %% [markdown]
// ## Data and a model
// 1,797 handwritten digits of 8×8 pixels, 16 shades of grey each. Every rank reads all of them; which ones it trains on comes later.

// %% read the digits
#include <fstream>
#include <sstream>

struct Digits {
  torch::Tensor images;  // [N, 1, 8, 8] float32, 0 to 1
  torch::Tensor labels;  // [N] int64, 0 to 9
};

Digits read_digits(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path + ": run the lesson in the folder of scripts/, or say --arg data=DIR");
  std::vector<float> numbers;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) numbers.push_back(std::stof(field));
  }
  auto table = torch::tensor(numbers).view({-1, 65});  // 64 pixels, then the digit
  return {(table.narrow(1, 0, 64) / 16).reshape({-1, 1, 8, 8}).to(device), table.select(1, 64).to(torch::kLong).to(device)};
}

const Digits digits = read_digits(arg("data", "scripts/data") + "/digits.csv");
digits.images.sizes()

// %% the model: two convolutions and a linear layer
struct Net : torch::nn::Module {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 64, 3).padding(1)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(64, 128, 3).padding(1)};
  torch::nn::Linear fc{128 * 4 * 4, 10};

  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc", fc);
    to(device);
  }

  torch::Tensor forward(torch::Tensor images) {
    auto x = torch::relu(conv1(images));
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return fc(x.flatten(1));
  }
};

// %% [markdown]
// ## Version 1: the replicas must start equal
// Weights are drawn at random when a module is made. So the ranks get the same model only if they have drawn the same numbers, that is, if they
// had the same seed. Let us get that wrong on purpose: all ranks are seeded with 42, and then rank 0 alone with 43.

// %% the same seed everywhere
set_seed(42);

// %% but another one on rank 0
%%rank [0]
set_seed(43);

// %% [markdown]
// The wrapper checks what it is given: rank 0 sends its copy of each parameter to all others, and each rank compares it with its own, bit by bit.
//
// Look at where it throws: *after* the loop. A rank that left in the middle of the loop would no longer take part in the broadcasts that
// follow, and the others would wait for it. A collective is a promise that all ranks come.

// %% version 1
template <typename Module>
class SimpleDistributedDataParallelism {
 public:
  explicit SimpleDistributedDataParallelism(std::shared_ptr<Module> module) : module_(std::move(module)) {
    std::vector<std::string> different;
    for (const auto& parameter : module_->named_parameters()) {
      auto rank0_copy = parameter.value().detach().clone();
      dist::broadcast(rank0_copy, 0);
      if (!torch::equal(rank0_copy, parameter.value())) different.push_back(parameter.key());
    }
    if (!different.empty())
      throw std::runtime_error(std::to_string(different.size()) + " parameters are not those of rank 0, first " +
                               different[0] + "; call set_seed with the same number on every rank before you create the model");
  }

  size_t parameter_count() const { return module_->parameters().size(); }

 private:
  std::shared_ptr<Module> module_;
};

// %% wrap a model that was made with different seeds tags=["raises-exception"]
auto net = std::make_shared<Net>();
SimpleDistributedDataParallelism wrapped(net);

// %% [markdown]
// Rank 0 is content: its copy is its own copy. Every other rank has thrown. Nobody hangs, and the session goes on: state is where it was, and
// the next cell may define the same names again.

// %% the same seed, then the same model
set_seed(43);
auto net = std::make_shared<Net>();
SimpleDistributedDataParallelism first(net);
first.parameter_count()

// %% [markdown]
// ## Version 2: a wrapper that feels like a module
// A class may be defined again, like any name. From now on `SimpleDistributedDataParallelism` is this one; `first` remains what it was made as.
// The check moves into a function, so that the class stays short.

// %% the check of version 1
void require_rank0_copy(const torch::nn::Module& module) {
  bool same = true;
  for (const auto& parameter : module.parameters()) {
    auto rank0_copy = parameter.detach().clone();
    dist::broadcast(rank0_copy, 0);
    same = torch::equal(rank0_copy, parameter) && same;
  }
  if (!same)
    throw std::runtime_error("this is not rank 0's model; call set_seed with the same number on every rank before you create it");
}

// %% version 2: call it, train it, evaluate it
template <typename Module>
class SimpleDistributedDataParallelism {
 public:
  explicit SimpleDistributedDataParallelism(std::shared_ptr<Module> module) : module_(std::move(module)) {
    require_rank0_copy(*module_);
  }

  template <typename... Inputs>
  torch::Tensor operator()(Inputs&&... inputs) {
    return module_->forward(std::forward<Inputs>(inputs)...);
  }

  void train() { module_->train(); }
  void eval() { module_->eval(); }

 private:
  std::shared_ptr<Module> module_;
};

// %% the old object still works, the new one can do more
SimpleDistributedDataParallelism replica(net);
show(first.parameter_count());
replica.train();
replica(digits.images.narrow(0, 0, 2)).sizes()

// %% [markdown]
// ## A step without averaging
// Each rank takes a digit of its own: rank 0 the first, rank 1 the second, and so on. Forward, backward, one step of Adam.

// %% every rank its own sample
auto optimizer = std::make_unique<torch::optim::Adam>(net->parameters(), 1e-3);
auto image = digits.images.narrow(0, rank, 1);
auto label = digits.labels.narrow(0, rank, 1);

auto loss = torch::cross_entropy_loss(replica(image), label);
loss.backward();
optimizer->step();
optimizer->zero_grad();
loss.item<float>()

// %% [markdown]
// The losses differ, as they should: the samples differ. But what about the replicas? Every rank collects everybody's copy of each parameter and
// compares them with rank 0's. All ranks see the same copies, so all of them come to the same verdict.

// %% a check by hand
using NamedTensors = torch::OrderedDict<std::string, torch::Tensor>;

void check_same(const NamedTensors& tensors) {
  int index = 0;
  for (const auto& item : tensors) {
    auto copies = dist::all_gather(item.value().detach());
    for (int other = 1; other < world_size; ++other) {
      if (torch::allclose(copies[other], copies[0], /*rtol=*/1e-5, /*atol=*/1e-6)) continue;
      std::ostringstream message;
      message << "rank " << other << ", tensor " << index << " (" << item.key() << ") differs from rank 0 by up to "
              << (copies[other] - copies[0]).abs().max().item<float>();
      throw std::runtime_error(message.str());
    }
    ++index;
  }
  std::cout << index << " tensors are the same on " << world_size << " ranks\n";
}

// %% are the replicas still the same? tags=["raises-exception"]
check_same(net->named_parameters());

// %% [markdown]
// One step, and they have parted. From here on each rank trains a model of its own, and no error will ever be raised by itself.
//
// ## Version 3: average the gradients
// Sum each gradient over all ranks, divide by their number. It has to happen between `backward()` and `step()`.

// %% version 3
template <typename Module>
class SimpleDistributedDataParallelism {
 public:
  explicit SimpleDistributedDataParallelism(std::shared_ptr<Module> module) : module_(std::move(module)) {
    require_rank0_copy(*module_);
  }

  template <typename... Inputs>
  torch::Tensor operator()(Inputs&&... inputs) {
    return module_->forward(std::forward<Inputs>(inputs)...);
  }

  void train() { module_->train(); }
  void eval() { module_->eval(); }

  void sync_gradients() {
    for (const auto& parameter : module_->parameters()) {
      dist::all_reduce(parameter.grad());
      parameter.grad().div_(world_size);
    }
  }

 private:
  std::shared_ptr<Module> module_;
};

// %% the same step, with the average
set_seed(43);
auto net = std::make_shared<Net>();
SimpleDistributedDataParallelism replica(net);
auto optimizer = std::make_unique<torch::optim::Adam>(net->parameters(), 1e-3);

auto loss = torch::cross_entropy_loss(replica(image), label);
loss.backward();
replica.sync_gradients();
optimizer->step();
loss.item<float>()

// %% and the same check
check_same(net->named_parameters());

// %% [markdown]
// ## Giving memory back
// A model costs its parameters, as much again for the gradients, and twice as much for Adam's two moments. It all goes when the last owner goes:
// here `net` and `replica` share the module, and the optimizer holds its parameters.

// %% who owns the module?
net.use_count()

// %% let go of everything
#include <malloc.h>
#include <unistd.h>

double resident_mb() {  // of this process
  std::ifstream statm("/proc/self/statm");
  double pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE) / (1 << 20);
}

double with_the_model = resident_mb();
std::weak_ptr<Net> watch = net;  // sees the module, does not own it
{
  auto last_owner = std::move(replica);  // takes the module out of `replica`, and is gone at the closing brace
  net.reset();
  optimizer.reset();
}
malloc_trim(0);  // give free memory back to the system, as emptying the cache does on a GPU
double without_it = resident_mb();

if (!watch.expired()) throw std::logic_error("the module is still alive");
std::cout << std::fixed << std::setprecision(1) << "rank " << rank << ": " << with_the_model << " MB before, " << with_the_model - without_it
          << " MB given back\n";

// %% [markdown]
// ## Does it pay?
// 21 batches of 16 digits: first on one rank alone, then on all ranks, each with its share of every batch (8 on two ranks). The digits are
// shuffled and cut into contiguous shards, one per rank; the last rank takes what remains. All ranks shuffle with the same seed, so that they
// cut the same deck.

// %% shards, and a stopwatch
#include <chrono>

Digits shard(const Digits& all, int index, int count) {
  set_seed(42);
  auto order = torch::randperm(all.labels.size(0), torch::kLong).to(device);
  auto length = order.size(0) / count;
  auto begin = index * length;
  auto mine = index == count - 1 ? order.slice(0, begin) : order.slice(0, begin, begin + length);
  return {all.images.index_select(0, mine), all.labels.index_select(0, mine)};
}

template <typename Step>
double seconds_per_batch(const Digits& data, int64_t batch_size, Step step) {
  const int kBatches = 21;
  auto start = std::chrono::steady_clock::now();
  for (int batch = 0; batch < kBatches; ++batch) {
    auto begin = batch * batch_size;
    step(data.images.narrow(0, begin, batch_size), data.labels.narrow(0, begin, batch_size));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kBatches;
}

const int64_t kBatchSize = 16;
const int64_t share = std::max<int64_t>(1, kBatchSize / world_size);
share

// %% every digit is in one shard, and in one only
auto mine = shard(digits, rank, world_size);
auto sizes = dist::all_gather_object(mine.labels.size(0));
if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != digits.labels.size(0))
  throw std::logic_error("the shards do not add up");
sizes

// %% one rank alone
%%rank [0]
set_seed(43);
auto net = std::make_shared<Net>();
auto optimizer = std::make_unique<torch::optim::Adam>(net->parameters(), 1e-3);
auto alone = seconds_per_batch(shard(digits, 0, 1), kBatchSize, [&](auto images, auto labels) {
  auto loss = torch::cross_entropy_loss(net->forward(images), labels);
  loss.backward();
  optimizer->step();
  optimizer->zero_grad();
});
alone

// %% all ranks, each with its share
set_seed(43);
auto net = std::make_shared<Net>();
SimpleDistributedDataParallelism replica(net);
auto optimizer = std::make_unique<torch::optim::Adam>(net->parameters(), 1e-3);
auto together = seconds_per_batch(shard(digits, rank, world_size), share, [&](auto images, auto labels) {
  auto loss = torch::cross_entropy_loss(replica(images), labels);
  loss.backward();
  optimizer->step();
  optimizer->zero_grad();
});
together

// %% [markdown]
// Each rank has a share of the work. Whether that shows in the time depends on the machine: two ranks on two busy cores gain little or nothing,
// two GPUs nearly half.
//
// **Exercise 2.** The cell above is fast, runs without an error, and is wrong. What is missing? Run the next two cells before you look. Then change
// the cell above, run it again, and `%check one_model` until it passes.

// %% the check of exercise 2
%%check one_model
check_same(net->named_parameters());

// %% did that train one model? tags=["raises-exception"]
%check one_model

// %% [markdown]
// <details><summary>Answer</summary>
//
// It never calls `sync_gradients()`. Each rank trained on its own shard alone, and the time was bought by leaving out the communication. A
// measurement of something that does not work is easy to make and hard to notice: check the replicas after every benchmark.
//
// </details>

// %% all ranks, each with its share, as one model
set_seed(43);
auto net = std::make_shared<Net>();
SimpleDistributedDataParallelism replica(net);
auto optimizer = std::make_unique<torch::optim::Adam>(net->parameters(), 1e-3);
auto together = seconds_per_batch(shard(digits, rank, world_size), share, [&](auto images, auto labels) {
  auto loss = torch::cross_entropy_loss(replica(images), labels);
  loss.backward();
  replica.sync_gradients();
  optimizer->step();
  optimizer->zero_grad();
});
together

// %% and now?
%check one_model

// %% side by side
%%rank [0]
std::cout << std::fixed << std::setprecision(4) << "1 rank:  " << alone << " s per batch of " << kBatchSize << '\n'
          << world_size << " ranks: " << together << " s per batch of " << world_size << " x " << share << '\n';

// %% [markdown]
// ## Version 4: gradient accumulation
// When a batch does not fit into memory, it is cut into micro-batches whose gradients add up, and the step is taken after the last one. Averaging
// after every micro-batch would work, but all the averages but the last are wasted time. So the wrapper gets a switch, and a scope that
// turns it off and puts it back as it was, even when an exception leaves the scope.

// %% version 4
template <typename Module>
class SimpleDistributedDataParallelism {
 public:
  explicit SimpleDistributedDataParallelism(std::shared_ptr<Module> module) : module_(std::move(module)) {
    require_rank0_copy(*module_);
  }

  template <typename... Inputs>
  torch::Tensor operator()(Inputs&&... inputs) {
    return module_->forward(std::forward<Inputs>(inputs)...);
  }

  void train() { module_->train(); }
  void eval() { module_->eval(); }

  void sync_gradients() {
    if (!do_sync_) return;
    for (const auto& parameter : module_->parameters()) {
      dist::all_reduce(parameter.grad());
      parameter.grad().div_(world_size);
    }
  }

  bool do_sync() const { return do_sync_; }
  void enable_grad_sync() { do_sync_ = true; }
  void disable_grad_sync() { do_sync_ = false; }

  class NoSync {
   public:
    explicit NoSync(bool& do_sync) : do_sync_(do_sync), before_(do_sync) { do_sync_ = false; }
    ~NoSync() { do_sync_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    bool& do_sync_;
    bool before_;
  };

  [[nodiscard]] NoSync no_sync() { return NoSync(do_sync_); }

 private:
  std::shared_ptr<Module> module_;
  bool do_sync_ = true;
};

// %% the scope puts back what was there before
set_seed(43);
auto net = std::make_shared<Net>();
SimpleDistributedDataParallelism replica(net);
std::vector<bool> seen;
{
  auto outer = replica.no_sync();
  seen.push_back(replica.do_sync());
  {
    auto inner = replica.no_sync();
    seen.push_back(replica.do_sync());
  }
  seen.push_back(replica.do_sync());  // still off: the outer scope is open
}
seen.push_back(replica.do_sync());
if (seen != std::vector<bool>{false, false, false, true}) throw std::logic_error("no_sync() does not restore");
seen

// %% [markdown]
// Now the proof. Each rank runs a window of four micro-batches and averages after the last; the loss is divided by four, since gradients add up.
// Beside it, one model takes a single step with all those digits as one large batch. Plain SGD, so that the models can be compared number by number.

// %% accumulate over four micro-batches
const int kWindow = 4;
const int64_t kMicroBatch = 4;
auto optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), 0.1);

template <typename Replica>
void micro_step(Replica& replica, int index) {
  auto begin = (index * world_size + rank) * kMicroBatch;  // the ranks take turns, one micro-batch each
  auto scores = replica(digits.images.narrow(0, begin, kMicroBatch));
  auto loss = torch::cross_entropy_loss(scores, digits.labels.narrow(0, begin, kMicroBatch)) / kWindow;
  loss.backward();
  replica.sync_gradients();
}

{
  auto scope = replica.no_sync();
  for (int index = 0; index < kWindow - 1; ++index) micro_step(replica, index);
}
micro_step(replica, kWindow - 1);
optimizer->step();
check_same(net->named_parameters());

// %% one step with the large batch
set_seed(43);
auto large = std::make_shared<Net>();
auto large_optimizer = torch::optim::SGD(large->parameters(), 0.1);
auto count = kWindow * kMicroBatch * world_size;
torch::cross_entropy_loss(large->forward(digits.images.narrow(0, 0, count)), digits.labels.narrow(0, 0, count)).backward();
large_optimizer.step();

for (const auto& parameter : large->named_parameters())
  if (!torch::allclose(net->named_parameters()[parameter.key()], parameter.value(), 1e-4, 1e-6))
    throw std::runtime_error(parameter.key() + ": accumulation does not equal the large batch");
std::cout << "four micro-batches on " << world_size << " ranks: the same step as one batch of " << count << '\n';

// %% [markdown]
// **Exercise 3.** Much code writes the window as below: one loop, and a condition for when to average. Which micro-batch does `index % kWindow == 0`
// pick? What do the gradients look like at the end of the window, and which condition is right? `%check one_gradient` passes with the right one.

// %% a condition that looks right
set_seed(43);
auto net = std::make_shared<Net>();
SimpleDistributedDataParallelism replica(net);

for (int index = 0; index < kWindow; ++index) {
  if (index % kWindow == 0)
    replica.enable_grad_sync();
  else
    replica.disable_grad_sync();
  micro_step(replica, index);
}

// %% the check of exercise 3
%%check one_gradient
NamedTensors gradients;
for (const auto& parameter : net->named_parameters()) gradients.insert(parameter.key(), parameter.value().grad());
check_same(gradients);

// %% are the gradients the same? tags=["raises-exception"]
%check one_gradient

// %% [markdown]
// <details><summary>Answer</summary>
//
// It picks the first micro-batch. The average of that one is then added to the local gradients of the other three, which nobody averages: the
// gradients differ at the end of the window, and so do the replicas after the step. The last micro-batch is the one where
// `(index + 1) % kWindow == 0`.
//
// </details>

// %% the right one
set_seed(43);
auto net = std::make_shared<Net>();
SimpleDistributedDataParallelism replica(net);

for (int index = 0; index < kWindow; ++index) {
  if ((index + 1) % kWindow == 0)
    replica.enable_grad_sync();
  else
    replica.disable_grad_sync();
  micro_step(replica, index);
}

// %% and these?
%check one_gradient

// %% [markdown]
// **Exercise 4.** `micro_step` is given the replica. Suppose that it simply used the name `replica`, as a function in a Python notebook may. Which
// object would the last cell have trained?
//
// <details><summary>Answer</summary>
//
// The one of the cell in which `micro_step` was compiled, three cells up. C++ binds a name when it compiles the code that uses it; defining the name
// again makes a second object and leaves the first in place. Hand over what a function works on, or define the function again.
//
// </details>

// %% [markdown]
// ## What you have now
// Four rules, each of which you have seen broken:
//
// 1. Replicas start equal. (Seeds, or a broadcast.)
// 2. Gradients are averaged once per step, after the last micro-batch and before the optimizer.
// 3. A collective is called by all ranks, or by none.
// 4. Nobody tells you when you break the first two. So look: compare the replicas.
//
// How to go on: `scripts/debugging/` has two broken trainings as they happen in real life, and the way to the culprit.
