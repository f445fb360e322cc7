// %% [markdown]
// # Replicas that drift apart
// A training runs for hours without an error. The loss goes down, a little less than it should. In the end the checkpoint of rank 0 is worse than
// what the log promised. When replicas part, nothing throws: each rank goes on with a model of its own.
//
// This script finds **which rank, which parameter, which step**, with nothing but a checksum and one `all_gather` per step. Copy the cells "the
// tracker" and "the report" into a training of your own.
//
//     lockstep run scripts/debugging/replicas-that-drift.cpp -n 2
//
// With two ranks one can say that they differ, not who is right. From three ranks on the majority is the reference: try `-n 3`.

// %% digits, and a small model that all ranks make alike
#include <fstream>
#include <sstream>

if (world_size < 2) throw std::runtime_error("there is nothing to compare on one rank: run this with -n 2 or more");

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
auto images = table.narrow(1, 0, 64) / 16;           // [1797, 64]
auto labels = table.select(1, 64).to(torch::kLong);  // [1797]

torch::nn::Sequential make_model() {
  set_seed(42);  // the same on every rank
  torch::nn::Sequential model(torch::nn::Linear(64, 32), torch::nn::ReLU(), torch::nn::Linear(32, 10));
  model->to(device);
  return model;
}
images.sizes()

// %% [markdown]
// ## The tracker
// A checksum is a number that two tensors share when their bits are the same. Each element is read as an integer and multiplied with a number that
// belongs to its place, so that two elements that have changed places do not cancel out; the sum wraps around, which does no harm.
//
// Checksums of all parameters fit into one small tensor. The ranks exchange it after each step, which costs next to nothing, and all of them know
// at once where the replicas part for the first time.

// %% the tracker
torch::Tensor checksums(const torch::nn::Module& model) {  // int64, one for each parameter
  torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> sums;
  for (const auto& parameter : model.parameters()) {
    auto bits = parameter.detach().contiguous().view({-1}).view(torch::kInt).to(torch::kLong);
    auto place = torch::arange(1, bits.numel() + 1, bits.options()) * 2654435761;  // another factor for each
    sums.push_back((bits * place).sum());
  }
  return torch::stack(sums);
}

/// Ranks whose checksum is not the one that most ranks have; where there is no majority, all ranks.
std::vector<int> odd_ranks(const std::vector<int64_t>& sum_of_rank) {
  std::map<int64_t, int> votes;
  for (auto sum : sum_of_rank) ++votes[sum];
  std::vector<int> odd;
  auto most = std::max_element(votes.begin(), votes.end(), [](auto& a, auto& b) { return a.second < b.second; });
  bool majority = 2 * most->second > static_cast<int>(sum_of_rank.size());
  for (size_t r = 0; r < sum_of_rank.size(); ++r)
    if (!majority || sum_of_rank[r] != most->first) odd.push_back(static_cast<int>(r));
  return odd;
}

// %% [markdown]
// ## The report
// Called by all ranks after each step. It throws on all of them at the first step after which a parameter is not the same everywhere.

// %% the report
void require_same_replicas(const torch::nn::Module& model, int step) {
  auto of_rank = dist::all_gather(checksums(model));
  auto names = model.named_parameters().keys();
  std::string different;
  std::set<int> odd;
  for (size_t p = 0; p < names.size(); ++p) {
    std::vector<int64_t> sums;
    for (const auto& gathered : of_rank) sums.push_back(gathered[p].item<int64_t>());
    if (std::all_of(sums.begin(), sums.end(), [&](int64_t sum) { return sum == sums[0]; })) continue;
    different += (different.empty() ? "" : ", ") + names[p];
    for (int r : odd_ranks(sums)) odd.insert(r);
  }
  if (different.empty()) return;
  std::ostringstream report;
  report << "the replicas part at step " << step << ", in " << different << "; at odds: rank";
  for (int r : odd) report << ' ' << r;
  if (static_cast<int>(odd.size()) == world_size) report << " (no majority says which is right)";
  throw std::runtime_error(report.str());
}

// %% [markdown]
// ## The training, with its fault
// The learning rate is halved when the loss has not improved for a while: a schedule as every framework has it. Read the loop before you run it.
// The gradients are averaged, and the first steps pass in silence. What is it that the ranks do not share?

// %% train, and look after every step tags=["raises-exception"]
void average_gradients(const torch::nn::Module& model) {
  for (const auto& parameter : model.parameters()) {
    dist::all_reduce(parameter.grad());
    parameter.grad().div_(world_size);
  }
}

void train(torch::nn::Sequential model, bool share_the_loss) {
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.2).momentum(0.9));
  float best = std::numeric_limits<float>::infinity();
  int without_progress = 0;
  for (int step = 0; step < 60; ++step) {
    auto begin = (step * world_size + rank) * 32 % (images.size(0) - 32);
    auto loss = torch::cross_entropy_loss(model->forward(images.narrow(0, begin, 32)), labels.narrow(0, begin, 32));
    optimizer.zero_grad();
    loss.backward();
    average_gradients(*model);

    auto measured = loss.detach().clone();
    if (share_the_loss) dist::all_reduce(measured, dist::ReduceOp::AVG);
    without_progress = measured.item<float>() < best ? 0 : without_progress + 1;
    best = std::min(best, measured.item<float>());
    if (without_progress == 3) {
      for (auto& group : optimizer.param_groups()) group.options().set_lr(group.options().get_lr() / 2);
      std::cout << "step " << step << ": learning rate " << optimizer.param_groups()[0].options().get_lr() << '\n';
      without_progress = 0;
    }
    optimizer.step();
    require_same_replicas(*model, step);
  }
  std::cout << "60 steps, and the replicas are the same\n";
}

train(make_model(), /*share_the_loss=*/false);

// %% [markdown]
// ## Reading it
// The report names a step, and the output of that very step says the rest: one rank halved its learning rate, another did not. Each rank judged by
// *its own* loss, that of its own batch. The gradients were the same everywhere; the step that was made of them was not.
//
// The rule behind it: every decision about the training (a learning rate, a skipped step, an early end, the scale of a loss scaler) must be made
// from numbers that all ranks share. Here one `all_reduce` of the loss is enough.

// %% the fix: all ranks judge by the mean loss
train(make_model(), /*share_the_loss=*/true);
