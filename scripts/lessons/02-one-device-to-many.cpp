// %% [markdown]
// # From one device to many
//
// You have a training program for one device. What has to change before it runs on two, or on sixty-four? Four things: the ranks are started, the
// model is wrapped, the data is divided, and one rank alone saves. Everything else stays, and so does the loss.
//
// The data is *Wine*: 178 wines, 13 measurements of each, from three growers.
//
//     lockstep run scripts/lessons/02-one-device-to-many.cpp -n 2
//
// Try `-n 1` and `-n 4` as well: the losses are the same to rounding.

// %% read the table
struct Wine {
  torch::Tensor x, y;  // [N, 13] float32, standardised; [N] int64, 0 to 2
};

Wine read_wine(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path + ": run the lesson in the folder of scripts/, or say --arg data=DIR");
  std::string line;
  std::getline(file, line);  // the header
  std::vector<float> numbers;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) numbers.push_back(std::stof(field));
  }
  auto table = torch::tensor(numbers).view({-1, 14});
  auto x = table.narrow(1, 0, 13);
  return {((x - x.mean(0)) / x.std(0)).to(device), table.select(1, 13).to(torch::kLong).to(device)};
}

const Wine wine = read_wine(arg("data", "scripts/data") + "/wine.csv");
wine.x.sizes()

// %% [markdown]
// Four fifths are for training. Every rank draws the split itself, so all must draw the same numbers: the seed is the same everywhere.

// %% 142 wines to train on, 36 to test with
set_seed(42);
const auto split = torch::randperm(wine.x.size(0), torch::kLong).to(device);
const int64_t kTrain = 142;
const Wine train{wine.x.index_select(0, split.narrow(0, 0, kTrain)), wine.y.index_select(0, split.narrow(0, 0, kTrain))};
const Wine test{wine.x.index_select(0, split.slice(0, kTrain)), wine.y.index_select(0, split.slice(0, kTrain))};
split.narrow(0, 0, 5)

// %% the model
struct Net : torch::nn::Module {
  torch::nn::Linear hidden{register_module("hidden", torch::nn::Linear(13, 64))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(64, 3))};
  Net() { to(device); }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(hidden(x))); }
};

// %% [markdown]
// ## The trainer
// It is written for one device. Its arguments say how to call the model and which batches to take: lists of row numbers, one list per step. An epoch gives back
// its mean loss.

// %% a trainer
using Batches = std::vector<torch::Tensor>;  // row numbers of each batch

template <typename Model, typename Draw>
struct Trainer {
  Model net;
  torch::optim::Adam optimizer;
  Draw draw;  // Batches of an epoch, by its number
  std::vector<double> losses = {};

  Trainer(Model model, Draw batches_of)
      : net(model), optimizer(net->parameters(), torch::optim::AdamOptions(1e-3)), draw(batches_of) {}

  double epoch(int number) {
    auto sum = torch::zeros({}, device);
    const Batches batches = draw(number);
    for (const auto& rows : batches) {
      optimizer.zero_grad();
      auto loss = torch::cross_entropy_loss(call(train.x.index_select(0, rows)), train.y.index_select(0, rows));
      loss.backward();
      optimizer.step();
      sum += loss.detach();
    }
    return sum.item<double>() / batches.size();
  }

  torch::Tensor call(const torch::Tensor& x) {
    if constexpr (requires { net(x); })
      return net(x);
    else
      return net->forward(x);
  }

  void run(int epochs) {
    for (int number = 0; number < epochs; ++number) losses.push_back(epoch(number));
  }
};

// %% the batches of one device: 32 wines each, in a new order every epoch
const int64_t kBatch = 32;

torch::Tensor order_of(int epoch) {  // the same on every rank
  return torch::randperm(kTrain, torch::make_generator<torch::CPUGeneratorImpl>(epoch)).to(device);
}

Batches whole_batches(int epoch) {
  Batches batches;
  const auto order = order_of(epoch);
  for (int64_t begin = 0; begin + kBatch <= kTrain; begin += kBatch) batches.push_back(order.narrow(0, begin, kBatch));
  return batches;
}
whole_batches(0).size()

// %% [markdown]
// ## One device
// Every rank now trains a model alone, without a word to the others. With the same seed they all do the same, so there is one line and not several.

// %% train on one device
set_seed(42);
auto alone = Trainer(std::make_shared<Net>(), whole_batches);
alone.run(30);
std::cout << std::fixed << std::setprecision(4) << "epoch 0: loss " << alone.losses.front() << ", epoch 29: loss " << alone.losses.back() << '\n';

// %% it has learnt
double share_right(Net& net) {  // of the wines that it has not seen
  torch::NoGradGuard no_grad;
  return net.forward(test.x).argmax(1).eq(test.y).to(torch::kFloat).mean().item<double>();
}

if (alone.losses.back() > 0.5 * alone.losses.front()) throw std::runtime_error("the loss did not fall by half");
if (share_right(*alone.net) < 0.8) throw std::runtime_error("it does not know wines that it has not seen");
share_right(*alone.net)

// %% [markdown]
// ## Many devices
// 1. **Start the ranks.** Lockstep has done it; outside of it, `torchrun`, `srun` or `mpirun` does, and the program calls
//    `dist::init_process_group()`.
// 2. **Wrap the model.** `ddp::DistributedDataParallel` gives every rank rank 0's weights and averages gradients during `backward()`.
// 3. **Divide the data.** The batch stays as large as it was; each rank takes its part of it. The mean of the means of equal parts is the mean, so the
//    step is the one that a single device would take.
// 4. **One rank saves.**

// %% each rank's part of every batch
if (kBatch % world_size != 0)
  throw std::runtime_error("a batch of 32 does not divide by " + std::to_string(world_size) + " ranks: use -n 1, 2, 4, 8, 16 or 32");

Batches my_batches(int epoch) {
  const int64_t share = kBatch / world_size;
  Batches mine;
  for (const auto& rows : whole_batches(epoch)) mine.push_back(rows.narrow(0, rank * share, share));
  return mine;
}
my_batches(0)[0].sizes()

// %% train on all of them
set_seed(42 + rank);  // only rank 0's weights count: the wrapper gives them to all
auto together = Trainer(ddp::DistributedDataParallel(std::make_shared<Net>()), my_batches);
together.run(30);

// Each rank knows the loss of its own rows. The mean over the ranks is the loss of the whole batch.
auto losses = torch::tensor(together.losses, torch::kDouble);
dist::all_reduce(losses, dist::ReduceOp::AVG);
std::cout << std::fixed << std::setprecision(4) << "epoch 0: loss " << losses[0].item<double>() << ", epoch 29: loss "
          << losses[29].item<double>() << '\n';

// %% the losses are those of one device
const double apart = (losses - torch::tensor(alone.losses, torch::kDouble)).abs().max().item<double>();
if (apart > 1e-4) throw std::runtime_error("they differ from those of one device by " + std::to_string(apart));
apart < 1e-4

// %% and every rank has the same model
for (const auto& parameter : together.net->named_parameters())
  for (const auto& other : dist::all_gather(parameter.value().detach()))
    if (!torch::equal(other, parameter.value())) throw std::runtime_error(parameter.key() + " differs between ranks");
share_right(*together.net)

// %% [markdown]
// **Exercise 1.** A colleague leaves `my_batches` out and gives every rank `whole_batches`. It runs. What does each step compute, and what has the
// colleague paid for it? What if, instead, every rank draws an order of its own and takes 32 wines of it?
//
// <details><summary>Answer</summary>
//
// All ranks compute the same gradients, and their mean is that same gradient: the result of one device, at the price of several. With orders of their own the
// ranks see different wines, so the batch is 32 times the number of ranks: fewer steps in an epoch, each of them surer. That is a fair way to use
// more devices, but no longer the same training; the learning rate usually wants to grow with the batch.
//
// </details>
//
// ## One rank saves
// The replicas are equal, so one file is enough. If all ranks wrote it, they would write over each other. The name of the folder is made up by rank 0, which sends it to
// the others.

// %% a checkpoint
#include <filesystem>
#include <unistd.h>

std::vector<std::string> folder{""};
if (ddp::is_main_rank()) {
  std::string pattern = (std::filesystem::temp_directory_path() / "wine-XXXXXX").string();
  folder[0] = mkdtemp(pattern.data());
  torch::save(together.net, folder[0] + "/net.pt");
}
dist::broadcast_object_list(folder);  // also a barrier for the others: they go on when the file is there

// %% it opens in the bare module, on every rank
auto restored = std::make_shared<Net>();
torch::load(restored, folder[0] + "/net.pt");
if (share_right(*restored) != share_right(*together.net)) throw std::runtime_error("this is not the model that was saved");
restored->named_parameters().keys()

// %% tidy up
if (ddp::is_main_rank()) std::filesystem::remove_all(folder[0]);

// %% [markdown]
// **Exercise 2.** Put the broadcast *before* the `if`. Which rank reads what, and when does it go wrong?
//
// <details><summary>Answer</summary>
//
// Rank 0 sends an empty name, since it has not made the folder yet. Had it made the folder but not the file, the others would look for a file that may or
// may not be there yet: an error that comes and goes. A collective after the write is what puts the two in order.
//
// </details>
//
// ## A sampler
// Cutting the order into parts by hand is not much work, but LibTorch has it ready: `DistributedRandomSampler` shuffles alike on all ranks and gives each its own
// part. `ddp::random_sampler` makes one that knows this rank.

// %% each rank its own part of an epoch
auto sampler = ddp::random_sampler(kTrain, /*allow_duplicates=*/false);

Batches sampled_batches(int epoch) {
  sampler.set_epoch(epoch);
  sampler.reset();
  Batches batches;
  while (auto rows = sampler.next(kBatch / world_size)) {
    const std::vector<int64_t> numbers(rows->begin(), rows->end());
    batches.push_back(torch::tensor(numbers).to(device));
  }
  return batches;
}
sampled_batches(0).size()

// %% no wine is read twice
std::vector<int64_t> rows_of(const Batches& batches) {
  const auto rows = torch::cat(batches).to(torch::kCPU);
  return {rows.data_ptr<int64_t>(), rows.data_ptr<int64_t>() + rows.numel()};
}

std::vector<int64_t> seen;
for (const auto& theirs : dist::all_gather_object(rows_of(sampled_batches(0)))) seen.insert(seen.end(), theirs.begin(), theirs.end());
std::sort(seen.begin(), seen.end());
if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) throw std::runtime_error("a wine was read twice");
seen.size()

// %% and the next epoch has another order
if (rows_of(sampled_batches(0)) == rows_of(sampled_batches(1))) throw std::runtime_error("every epoch has the same order");
if (rows_of(sampled_batches(1)) != rows_of(sampled_batches(1))) throw std::runtime_error("an epoch can't be repeated");

// %% train with it
set_seed(42);
auto sampled = Trainer(ddp::DistributedDataParallel(std::make_shared<Net>()), sampled_batches);
sampled.run(30);
auto reached = torch::tensor(sampled.losses.back(), torch::kDouble);
dist::all_reduce(reached, dist::ReduceOp::AVG);
if (std::abs(reached.item<double>() - alone.losses.back()) > 0.05) throw std::runtime_error("it reaches another loss");
std::cout << std::fixed << std::setprecision(2) << "epoch 29: loss " << reached.item<double>() << ", on one device " << alone.losses.back() << '\n';

// %% [markdown]
// **Exercise 3.** Delete the line with `set_epoch` in a copy of this lesson and run it. What notices, and what would notice in a training script?
//
// <details><summary>Answer</summary>
//
// The cell that compares two epochs stops the lesson. In a training script nothing stops: the sampler gives the order of epoch 0 again and again, the loss falls
// all the same, a little less well. Nobody sees it who does not look.
//
// </details>
//
// ## Several machines
// `local_rank` counts the ranks of one machine and picks the device. `rank` counts them all: the number of the machine, times the ranks that each machine has, plus
// `local_rank`. Two ranks with one number would wait for a third that never comes, so it is worth a check.

// %% who is who
const int ranks_here = world_size;  // this session runs on one machine
if (rank != node_rank * ranks_here + local_rank) throw std::runtime_error("rank, node_rank and local_rank do not fit together");
auto everyone = dist::all_gather_object(rank);
std::sort(everyone.begin(), everyone.end());
for (int expected = 0; expected < world_size; ++expected)
  if (everyone[expected] != expected) throw std::runtime_error("there is no rank " + std::to_string(expected));
everyone

// %% [markdown]
// **Exercise 4.** A tutorial computes the rank as `local_rank + node_rank * device_count`, and it works for its author, on machines of four GPUs with four ranks each.
// On which machines does it break?
//
// <details><summary>Answer</summary>
//
// Where the machines do not run as many ranks as they have devices: with two ranks on each machine of four GPUs the ranks are 0, 1, 4, 5, and the
// group waits for 2 and 3 for ever. What counts is how many ranks run on each machine (`torchrun` says it as `LOCAL_WORLD_SIZE`).
//
// </details>
//
// ## What you have now
// The program for one device, and four changes: start, wrap, divide, save once. In `examples/train` the same stands as a program that `torchrun` and `mpirun` start.
