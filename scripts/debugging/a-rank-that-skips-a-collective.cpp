// %% [markdown]
// # A rank that skips a collective
// A collective is a promise that all ranks come. When one does not, the others wait, and nothing in the program says for whom. Under a batch
// scheduler that is a job that does nothing until its time is up, and a log that ends in the middle of an epoch.
//
// Here it ends at once. A rank that has left the cell cannot come any more, so the wait of the others is a *proven* hang: no time limit is needed.
// The finding names the ranks that are missing, the collective, and the line in which the others wait. The ranks that wait are freed, and their
// state is kept.
//
//     lockstep run scripts/debugging/a-rank-that-skips-a-collective.cpp -n 2

// %% digits
#include <fstream>
#include <sstream>

if (world_size < 2) throw std::runtime_error("one rank waits for nobody: run this with -n 2 or more");

std::vector<float> read_numbers(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path + ": run this in the checkout, or say --arg data=DIR");
  std::vector<float> numbers;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) numbers.push_back(std::stof(field));
  }
  return numbers;
}

auto table = torch::tensor(read_numbers(arg("data", "scripts/data") + "/digits.csv")).view({-1, 65}).to(device);

// %% [markdown]
// ## The fault
// Each rank takes every `world_size`-th digit, and then keeps the zeros and ones only. The first is fair to the last digit. The second is not:
// the ranks end up with different numbers of samples, and so with different numbers of batches.

// %% shards, then a filter
auto shard = table.slice(0, rank, table.size(0), world_size);
auto wanted = shard.select(1, 64) <= 1;
auto images = shard.narrow(1, 0, 64).index({wanted}) / 16;
auto labels = shard.select(1, 64).index({wanted}).to(torch::kLong);
const int64_t kBatch = 10;
const int64_t batches = images.size(0) / kBatch;
batches

// %% a model, and a step of training
set_seed(42);
torch::nn::Linear model(64, 2);
model->to(device);
torch::optim::SGD optimizer(model->parameters(), 0.1);
int64_t steps = 0;

void train_on(int64_t batch) {
  optimizer.zero_grad();
  auto scores = model->forward(images.narrow(0, batch * kBatch, kBatch));
  torch::cross_entropy_loss(scores, labels.narrow(0, batch * kBatch, kBatch)).backward();
  for (const auto& parameter : model->parameters()) {
    dist::all_reduce(parameter.grad());
    parameter.grad().div_(world_size);
  }
  optimizer.step();
  ++steps;
}

// %% one pass over the data tags=["expects-finding=hang:hang"]
for (int64_t batch = 0; batch < batches; ++batch) train_on(batch);

// %% [markdown]
// ## Reading it
// - *Which ranks are missing*: those with fewer batches. They have ended their loop in good order; no error is to be found on them.
// - *Which collective*: the first `all_reduce` in `train_on`. Its number counts the collectives of the group; the missing ranks have not come
//   as far.
// - *The error on the ranks that waited* is a consequence, not the cause, and is marked so.
//
// The ranks that waited were freed in the middle of a step. Everything else is still there: the model, the optimizer, the count.

// %% how far did each rank come?
steps

// %% what the ranks did last, side by side
%collectives

// %% [markdown]
// ## The fix
// The ranks agree on the number of steps before the loop. The smallest is the simplest: a rank that has more leaves out its last batch. Nothing
// has to be started again; the next pass goes on with the current model.

// %% the fix: as many steps as all ranks have
auto common = torch::tensor({batches}, torch::TensorOptions().dtype(torch::kLong).device(device));
dist::all_reduce(common, dist::ReduceOp::MIN);
for (int64_t batch = 0; batch < common.item<int64_t>(); ++batch) train_on(batch);

// %% [markdown]
// Other fixes, when no sample may be lost: give every rank the same number of samples by repeating some (what samplers for distributed training
// do), filter *before* the data is cut into shards, or let the ranks that are done take part with gradients of zero.
