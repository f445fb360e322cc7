// %% [markdown]
// # Data parallelism in a language model's training script
//
// Language models are trained with batches far larger than a device can hold: half a million tokens for one step of the optimizer, a few thousand
// at a time. So a script *accumulates*: several forward and backward passes, then one step. This lesson takes such a script from one process to
// several. The model is a GPT of two layers that reads characters, the text is Lincoln's.
//
//     lockstep run scripts/lessons/03-accumulation.cpp -n 2
//
// The same with `-n 1`: a single process is a group of one, and nothing in the script asks which it is.

// %% who speaks for all

#include <fstream>
#include <iterator>

// The *main* process logs and saves. Its number is the rank over all machines, not local_rank: every machine has a local rank 0.
const bool main_process = ddp::is_main_rank();
main_process

// %% the text: a number for each character
std::ifstream file(arg("data", "scripts/data") + "/lincoln.txt");
if (!file) throw std::runtime_error("cannot read lincoln.txt: run the lesson in the checkout, or say --arg data=DIR");
const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
std::map<char, int64_t> number_of;
for (char c : text) number_of.emplace(c, 0);
int64_t vocabulary = 0;
for (auto& [c, number] : number_of) number = vocabulary++;
std::vector<int64_t> numbers;
for (char c : text) numbers.push_back(number_of.at(c));
const auto tokens = torch::tensor(numbers);
tokens.sizes()

// %% a small GPT
constexpr int64_t kContext = 32, kWidth = 32, kHeads = 4;

struct LayerImpl : torch::nn::Module {
  torch::nn::LayerNorm norm1{register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))};
  torch::nn::Linear attention{register_module("attention", torch::nn::Linear(kWidth, 3 * kWidth))};
  torch::nn::Linear project{register_module("project", torch::nn::Linear(kWidth, kWidth))};
  torch::nn::LayerNorm norm2{register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))};
  torch::nn::Linear up{register_module("up", torch::nn::Linear(kWidth, 4 * kWidth))};
  torch::nn::Linear down{register_module("down", torch::nn::Linear(4 * kWidth, kWidth))};

  torch::Tensor forward(torch::Tensor x) {
    const int64_t n = x.size(0), t = x.size(1);
    auto parts = attention(norm1(x)).view({n, t, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4}).unbind(0);
    auto y = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + project(y.transpose(1, 2).reshape({n, t, kWidth}));
    return x + down(torch::gelu(up(norm2(x))));
  }
};
TORCH_MODULE(Layer);

struct Gpt : torch::nn::Module {
  torch::nn::Embedding token{register_module("token", torch::nn::Embedding(vocabulary, kWidth))};
  torch::nn::Embedding place{register_module("place", torch::nn::Embedding(kContext, kWidth))};
  Layer layer1{register_module("layer1", Layer())};
  Layer layer2{register_module("layer2", Layer())};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(kWidth, vocabulary))};

  torch::Tensor forward(const torch::Tensor& x) { return head(layer2(layer1(token(x) + place(torch::arange(x.size(1)))))); }
};

// %% [markdown]
// ## Dividing the accumulation
// One update is to see 2,048 tokens, 4 rows of 32 at a time: 16 passes on one rank. Two ranks do 8 each. If the division does not come out even, ranks
// would differ in what they did, so it is an error, and the error says what to change.

// %% passes of each rank
constexpr int64_t kTokensPerUpdate = 2048, kRows = 4;
const int64_t passes = ddp::accumulation_steps(kTokensPerUpdate, kRows * kContext);
passes

// %% the figures of a real run: 2^19 tokens, 4 rows of 2,048
show(ddp::accumulation_steps(1 << 19, 4 * 2048, 1));
show(ddp::accumulation_steps(1 << 19, 4 * 2048, 4));

// %% three ranks can't share them tags=["raises-exception"]
ddp::accumulation_steps(1 << 19, 4 * 2048, 3);

// %% [markdown]
// ## The loader
// All passes of an update are numbered; rank r takes number r, r + world size, and so on: no token is read twice, none is left out.

// %% a loader that knows its share
struct Rows {
  torch::Tensor x, y;
};
Rows rows_of_pass(int64_t update, int64_t pass_of_all) {
  std::vector<torch::Tensor> x, y;
  const int64_t all_passes = kTokensPerUpdate / (kRows * kContext);
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t begin = ((update * all_passes + pass_of_all) * kRows + row) * kContext % (tokens.size(0) - kContext - 1);
    x.push_back(tokens.narrow(0, begin, kContext));
    y.push_back(tokens.narrow(0, begin + 1, kContext));
  }
  return {torch::stack(x), torch::stack(y)};
}

// %% [markdown]
// ## Training
// Only the last pass of an update needs the ranks to talk: the ones before it run with `require_backward_grad_sync` off. The loss is divided by the number
// of passes, because gradients add up where the mean is wanted.

// %% train
torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& targets) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
}
set_seed(1337);
auto net = ddp::DistributedDataParallel(std::make_shared<Gpt>());
torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-3));
constexpr int kUpdates = 12;
std::vector<double> losses;
for (int update = 0; update < kUpdates; ++update) {
  net.zero_grad();
  auto sum = torch::zeros({});
  for (int64_t pass = 0; pass < passes; ++pass) {
    net.require_backward_grad_sync(pass == passes - 1);
    auto rows = rows_of_pass(update, rank + pass * world_size);
    auto loss = loss_of(net(rows.x), rows.y) / passes;
    sum += loss.detach();
    loss.backward();
  }
  dist::all_reduce(sum, dist::ReduceOp::AVG);
  torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
  optimizer.step();
  losses.push_back(sum.item<double>());
}
if (losses.back() > 0.9 * losses.front()) throw std::runtime_error("the loss does not fall");
show(losses.front());
losses.back()

// %% a single process with the same tokens
std::vector<double> alone() {
  set_seed(1337);
  auto net = std::make_shared<Gpt>();
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-3));
  std::vector<double> losses;
  const int64_t all_passes = passes * world_size;
  for (int update = 0; update < kUpdates; ++update) {
    net->zero_grad();
    double sum = 0;
    for (int64_t pass = 0; pass < all_passes; ++pass) {
      auto rows = rows_of_pass(update, pass);
      auto loss = loss_of(net->forward(rows.x), rows.y) / all_passes;
      sum += loss.item<double>();
      loss.backward();
    }
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
    losses.push_back(sum);
  }
  return losses;
}
double apart = 0;
auto single = alone();
for (size_t i = 0; i < losses.size(); ++i) apart = std::max(apart, std::abs(losses[i] - single[i]));
if (apart > 1e-3) throw std::runtime_error("a single process has other losses: " + std::to_string(apart));
apart < 1e-3

// %% [markdown]
// ## The same with a scope
// `no_sync()` says for a block what `require_backward_grad_sync` says from here on. It is *forward* that must be inside: a scope around `backward()` alone changes
// nothing.

// %% no_sync
net.require_backward_grad_sync(true);
net.zero_grad();
{
  auto local = net.no_sync();
  auto rows = rows_of_pass(0, rank);
  loss_of(net(rows.x), rows.y).backward();
}
auto gradients = dist::all_gather(net->head->bias.grad());
if (world_size > 1 && torch::equal(gradients[0], gradients[1])) throw std::runtime_error("these were to stay local");
net.zero_grad();

// %% [markdown]
// ## What a Python script does besides
// `torch.compile` has no counterpart: C++ is compiled already. `%%O3` compiles the code of a cell with optimisation, which helps loops of your own and not the
// operators, which are LibTorch's. Autocast is there, as in Python:

// %% autocast to bfloat16
torch::Tensor in_low_precision;
{
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  torch::NoGradGuard no_grad;
  in_low_precision = net->layer1->up(torch::randn({4, kWidth}));
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
}
in_low_precision.dtype()
