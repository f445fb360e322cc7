// %% [markdown]
// # From one device to many
//
// A training program for one device, and the four changes that make it one for many: start the ranks, wrap the model, divide the data, and let one
// rank save. The data is *Wine*: 178 wines, 13 measurements each, from three growers.
//
//     lockstep run scripts/lessons/02-one-device-to-many.cpp -n 2
//
// With `-n 1` it is the program for one device, and the loss at the end is the same.

// %% the data: standardised, 80 % to train on

#include <filesystem>
#include <fstream>
#include <sstream>

struct Wine {
  torch::Tensor x, y;  // [N, 13] float32, [N] int64
};

Wine read_wine(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path + ": run the lesson in the checkout, or say --arg data=DIR");
  std::string line;
  std::getline(file, line);  // the header
  std::vector<float> numbers;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) numbers.push_back(std::stof(field));
  }
  auto table = torch::tensor(numbers).view({-1, 14});
  auto x = table.narrow(1, 0, 13);
  return {(x - x.mean(0)) / x.std(0), table.select(1, 13).to(torch::kLong)};
}

Wine all = read_wine(arg("data", "scripts/data") + "/wine.csv");
set_seed(42);  // the same on every rank: they must agree on what is for training
auto order = torch::randperm(all.x.size(0));
const int64_t train_size = 142;
Wine train{all.x.index_select(0, order.narrow(0, 0, train_size)), all.y.index_select(0, order.narrow(0, 0, train_size))};
Wine test{all.x.index_select(0, order.narrow(0, train_size, 36)), all.y.index_select(0, order.narrow(0, train_size, 36))};
train.x.sizes()

// %% the model
struct Net : torch::nn::Module {
  torch::nn::Linear hidden{register_module("hidden", torch::nn::Linear(13, 64))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(64, 3))};
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(hidden(x))); }
};

// %% [markdown]
// ## The trainer
// It knows nothing of ranks but this: which samples are its own, and whether it is the one that saves. The batch is a *global* batch: each rank takes
// its part of it, so two ranks with half the batch each take the step that one rank takes with all of it.

// %% the trainer
constexpr int64_t kGlobalBatch = 32;

struct Trainer {
  ddp::DistributedDataParallel<Net> net;
  torch::optim::Adam optimizer;
  std::string folder;
  std::vector<double> losses = {};

  explicit Trainer(const std::string& checkpoints)
      : net(std::make_shared<Net>()), optimizer(net->parameters(), torch::optim::AdamOptions(1e-3)), folder(checkpoints) {}

  double epoch(int number) {
    net.train();
    // Every rank draws the same order and takes the same batches, each its own rows of them.
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(number);
    auto order = torch::randperm(train_size, generator);
    double sum = 0;
    int batches = 0;
    for (int64_t begin = 0; begin + kGlobalBatch <= train_size; begin += kGlobalBatch, ++batches) {
      const int64_t share = kGlobalBatch / world_size;
      auto mine = order.narrow(0, begin + rank * share, share);
      net.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(net(train.x.index_select(0, mine)), train.y.index_select(0, mine));
      loss.backward();
      optimizer.step();
      auto mean = loss.detach().clone();
      dist::all_reduce(mean, dist::ReduceOp::AVG);
      sum += mean.item<double>();
    }
    return sum / batches;
  }

  void run(int epochs, int save_every) {
    for (int number = 0; number < epochs; ++number) {
      losses.push_back(epoch(number));
      if (number % save_every == 0 && ddp::is_main_rank()) torch::save(net, folder + "/net.pt");
    }
  }
};

// %% the folder for checkpoints: rank 0 makes it and tells the others
std::vector<std::string> folder{""};
if (ddp::is_main_rank()) {
  std::string pattern = (std::filesystem::temp_directory_path() / "wine-XXXXXX").string();
  folder[0] = mkdtemp(pattern.data());
}
dist::broadcast_object_list(folder);

// %% train
set_seed(42);
Trainer trainer(folder[0]);
trainer.run(30, 10);
show(trainer.losses.front());
trainer.losses.back()

// %% it has learnt
if (trainer.losses.back() > 0.5 * trainer.losses.front()) throw std::runtime_error("the loss did not fall by half");
torch::Tensor right;
{
  torch::NoGradGuard no_grad;
  trainer.net.eval();
  right = trainer.net(test.x).argmax(1).eq(test.y).to(torch::kFloat).mean();
}
if (right.item<float>() < 0.8) throw std::runtime_error("it does not know the wines that it has not seen");
right.item<float>()

// %% [markdown]
// ## Is it the same as one device?
// Rank 0 trains the same model alone, with whole batches. The losses agree to rounding: the mean of the means of equal parts is the mean.

// %% one device, on each rank by itself
std::vector<double> train_alone(int epochs) {
  set_seed(42);
  auto net = std::make_shared<Net>();
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  std::vector<double> losses;
  for (int number = 0; number < epochs; ++number) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(number);
    auto order = torch::randperm(train_size, generator);
    double sum = 0;
    int batches = 0;
    for (int64_t begin = 0; begin + kGlobalBatch <= train_size; begin += kGlobalBatch, ++batches) {
      auto rows = order.narrow(0, begin, kGlobalBatch);
      net->zero_grad();
      auto loss = torch::nn::functional::cross_entropy(net->forward(train.x.index_select(0, rows)), train.y.index_select(0, rows));
      loss.backward();
      optimizer.step();
      sum += loss.item<double>();
    }
    losses.push_back(sum / batches);
  }
  return losses;
}
auto alone = train_alone(30);
double apart = 0;
for (size_t i = 0; i < alone.size(); ++i) apart = std::max(apart, std::abs(alone[i] - trainer.losses[i]));
if (apart > 1e-4) throw std::runtime_error("losses differ from those of one device by " + std::to_string(apart));
apart < 1e-4

// %% a checkpoint opens in the bare module
auto restored = std::make_shared<Net>();
torch::load(restored, folder[0] + "/net.pt");
restored->parameters().size()

// %% [markdown]
// ## Shuffled shares without doing it by hand
// LibTorch's distributed samplers give each rank its own indices. `set_epoch` shuffles anew; forget it, and every epoch has the same order.

// %% the shares are disjoint and complete
auto sampler = ddp::random_sampler(train_size, /*allow_duplicates=*/false);
sampler.set_epoch(1);
sampler.reset();
std::vector<int64_t> mine;
while (auto indices = sampler.next(32)) mine.insert(mine.end(), indices->begin(), indices->end());
std::vector<int64_t> seen;
for (const auto& theirs : dist::all_gather_object(mine)) seen.insert(seen.end(), theirs.begin(), theirs.end());
std::sort(seen.begin(), seen.end());
if (std::adjacent_find(seen.begin(), seen.end()) != seen.end()) throw std::runtime_error("a sample was read twice");
seen.size()

// %% tidy up
if (ddp::is_main_rank()) std::filesystem::remove_all(folder[0]);
