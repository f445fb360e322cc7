// %% [markdown]
// # Data parallelism in a language model's training script
//
// Language models are trained with batches far larger than a device can hold: half a million tokens for one step of the optimizer, a few thousand
// at a time. So a script *accumulates*: several forward and backward passes, then one step. This lesson takes such a script from one process to
// several. The model is a GPT of two layers that reads characters; the text is Lincoln's.
//
//     lockstep run scripts/lessons/03-accumulation.cpp -n 2
//
// The same with `-n 1`: a single process is a group of one, and nothing in the script asks which it is.
//
// ## The main process
// One process logs and saves. Scripts call it the *master process*. It goes by the rank over all machines and not by `local_rank`: every machine has a
// local rank 0.

// %% who speaks for all?
const bool main_process = ddp::is_main_rank();
main_process

// %% the text: a number for each character
std::ifstream file(arg("data", "scripts/data") + "/lincoln.txt");
if (!file) throw std::runtime_error("cannot read lincoln.txt: run the lesson in the folder of scripts/, or say --arg data=DIR");
std::stringstream whole;
whole << file.rdbuf();
const std::string text = whole.str();

const std::set<char> alphabet(text.begin(), text.end());
std::vector<int64_t> numbers;
for (char c : text) numbers.push_back(std::distance(alphabet.begin(), alphabet.find(c)));
const auto tokens = torch::tensor(numbers).to(device);
const int64_t vocabulary = alphabet.size();
std::cout << tokens.size(0) << " tokens, " << vocabulary << " different ones\n";

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
  Gpt() { to(device); }

  torch::Tensor forward(const torch::Tensor& x) { return head(layer2(layer1(token(x) + place(torch::arange(x.size(1), x.device()))))); }
};

// %% [markdown]
// ## Dividing the accumulation
// One update is to see 2,048 tokens, and a pass takes 4 rows of 32: 16 passes on one rank. Two ranks do 8 each, four do 4. Where the division does
// not come out even, some ranks would do more than others, so it is an error, and the error says which number to change.

// %% passes of each rank for one update
constexpr int64_t kTokensPerUpdate = 2048, kRows = 4;
const int64_t passes = ddp::accumulation_steps(kTokensPerUpdate, kRows * kContext);
passes

// %% the figures of a real run: 2^19 tokens, 4 rows of 2,048; on one GPU, and on four
show(ddp::accumulation_steps(1 << 19, 4 * 2048, 1), "one GPU");
show(ddp::accumulation_steps(1 << 19, 4 * 2048, 4), "four GPUs");

// %% three can't share them tags=["raises-exception"]
ddp::accumulation_steps(1 << 19, 4 * 2048, 3);

// %% [markdown]
// ## The loader
// Passes are numbered over all ranks; rank r takes r, r + world size, and so on. No token is read twice in an update, none is left out.

// %% a loader that knows its share
struct Rows {
  torch::Tensor x, y;  // [kRows, kContext]: characters, and the character after each
};

const int64_t kPasses = kTokensPerUpdate / (kRows * kContext);  // of all ranks together

std::vector<int64_t> begins_of_pass(int64_t update, int64_t pass) {
  std::vector<int64_t> begins;
  for (int64_t row = 0; row < kRows; ++row)
    begins.push_back(((update * kPasses + pass) * kRows + row) * kContext % (tokens.size(0) - kContext - 1));
  return begins;
}

Rows rows_of_pass(int64_t update, int64_t pass) {
  std::vector<torch::Tensor> x, y;
  for (int64_t begin : begins_of_pass(update, pass)) {
    x.push_back(tokens.narrow(0, begin, kContext));
    y.push_back(tokens.narrow(0, begin + 1, kContext));
  }
  return {torch::stack(x), torch::stack(y)};
}

int64_t my_pass(int64_t pass) { return rank + pass * world_size; }

// %% the ranks together read every row of an update once
std::vector<int64_t> mine;
for (int64_t pass = 0; pass < passes; ++pass)
  for (int64_t begin : begins_of_pass(0, my_pass(pass))) mine.push_back(begin);
std::set<int64_t> read;
size_t count = 0;
for (const auto& theirs : dist::all_gather_object(mine)) {
  read.insert(theirs.begin(), theirs.end());
  count += theirs.size();
}
if (read.size() != count || count * kContext != kTokensPerUpdate) throw std::runtime_error("a row was read twice, or left out");
count

// %% [markdown]
// ## Training
// Only the last pass of an update needs the ranks to talk. For the passes before it `require_backward_grad_sync` is off: their gradients stay on the rank and
// add up. The loss is divided by the number of passes, because sums add up where a mean is wanted.

// %% one update
torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& targets) {
  return torch::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
}

template <typename Net>
double accumulate(Net& net, int64_t update) {
  auto sum = torch::zeros({}, device);
  for (int64_t pass = 0; pass < passes; ++pass) {
    net.require_backward_grad_sync(pass == passes - 1);
    auto rows = rows_of_pass(update, my_pass(pass));
    auto loss = loss_of(net(rows.x), rows.y) / passes;
    loss.backward();
    sum += loss.detach();
  }
  dist::all_reduce(sum, dist::ReduceOp::AVG);
  return sum.item<double>();
}

// %% train
set_seed(1337);
auto net = ddp::DistributedDataParallel(std::make_shared<Gpt>());
torch::optim::AdamW optimizer(net.parameters(), torch::optim::AdamWOptions(3e-3));
constexpr int kUpdates = 12;
std::vector<double> losses;
for (int update = 0; update < kUpdates; ++update) {
  net.zero_grad();
  losses.push_back(accumulate(net, update));
  torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
  optimizer.step();
}
if (losses.back() > 0.9 * losses.front()) throw std::runtime_error("the loss does not fall");
std::cout << std::fixed << std::setprecision(4) << "update 0: loss " << losses.front() << ", update 11: loss " << losses.back() << '\n';

// %% a single process with the same tokens
std::vector<double> train_alone() {
  set_seed(1337);
  auto net = std::make_shared<Gpt>();
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(3e-3));
  std::vector<double> losses;
  for (int update = 0; update < kUpdates; ++update) {
    net->zero_grad();
    double sum = 0;
    for (int64_t pass = 0; pass < kPasses; ++pass) {
      auto rows = rows_of_pass(update, pass);
      auto loss = loss_of(net->forward(rows.x), rows.y) / kPasses;
      loss.backward();
      sum += loss.item<double>();
    }
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
    losses.push_back(sum);
  }
  return losses;
}

auto single = train_alone();
double apart = 0;
for (size_t i = 0; i < losses.size(); ++i) apart = std::max(apart, std::abs(losses[i] - single[i]));
if (apart > 1e-3) throw std::runtime_error("a single process has other losses: " + std::to_string(apart));
apart < 1e-3

// %% [markdown]
// Clipping comes after the last pass. Before it, each rank would clip gradients that are not the mean yet, each by a norm of its own.
//
// **Exercise 1.** How much would be sent if every pass were synchronised? The result is the same: a mean of sums is the sum of means.
//
// <details><summary>Answer</summary>
//
// As many times as much as there are passes: 8 times with two ranks. The next cell counts.
//
// </details>

// %% count the collectives of an update
int64_t collectives() {  // of this rank so far, out of its collective log
  return get("pg")->getDefaultBackend()->getSequenceNumberForGroup();
}

net.zero_grad();
const int64_t before = collectives();
accumulate(net, 0);
const int64_t once = collectives() - before - 1;  // the loss is reduced, too

net.zero_grad();
for (int64_t pass = 0; pass < passes; ++pass) {
  auto rows = rows_of_pass(0, my_pass(pass));
  loss_of(net(rows.x), rows.y).backward();
}
const int64_t every_time = collectives() - before - once - 1;
if (every_time != passes * once) throw std::runtime_error("one reduction a pass was expected");
std::cout << once << " for an update, " << every_time << " when every pass is synchronised\n";

// %% [markdown]
// ## The same with a scope
// `no_sync()` says for a block what `require_backward_grad_sync` says from here on. It is *forward* that must be inside: a scope around `backward()` alone changes
// nothing.

// %% gradients of this rank alone
bool gradients_agree() {
  for (const auto& parameter : net->parameters())
    for (const auto& other : dist::all_gather(parameter.grad()))
      if (!torch::equal(other, parameter.grad())) return false;
  return true;
}

net.zero_grad();
{
  auto local = net.no_sync();
  auto rows = rows_of_pass(0, rank);
  loss_of(net(rows.x), rows.y).backward();
}
if (world_size > 1 && gradients_agree()) throw std::runtime_error("these were to stay local");

// %% and the pass that ends the window
auto rows = rows_of_pass(0, rank + world_size);
loss_of(net(rows.x), rows.y).backward();
if (!gradients_agree()) throw std::runtime_error("these were to be the mean over the ranks");

// %% [markdown]
// **Exercise 2.** This window is a slip that many scripts have had: it synchronises when `pass % passes == 0`. What do the gradients hold at its end?

// %% a window that ends too early
net.zero_grad();
for (int64_t pass = 0; pass < passes; ++pass) {
  net.require_backward_grad_sync(pass % passes == 0);
  auto rows = rows_of_pass(0, my_pass(pass));
  loss_of(net(rows.x), rows.y).backward();
}
net.require_backward_grad_sync(true);
const bool same = gradients_agree();
if (same != (world_size == 1)) throw std::runtime_error("this slip was to be seen");
same

// %% [markdown]
// <details><summary>Answer</summary>
//
// The first pass is synchronised, and its mean is the same everywhere. The passes after it add gradients of their own rank, which nobody averages. The gradients differ, and after
// the step the replicas do. The last pass is the one to synchronise: `pass == passes - 1`, or `(pass + 1) % passes == 0`.
//
// </details>
//
// ## What a Python script does besides
// `torch.compile` has no counterpart here, around the wrapper or inside it: C++ is compiled already. `%%O3` compiles the code of a cell with optimisation, which helps loops of your
// own and not the operators, which are LibTorch's. Autocast is there, as in Python: matrix products in a type of 16 bits, the rest in float.

// %% autocast
#include <ATen/autocast_mode.h>

class Autocast {  // to bfloat16, while it lives
 public:
  Autocast() : before_(at::autocast::is_autocast_enabled(device.type())) {
    at::autocast::set_autocast_enabled(device.type(), true);
    at::autocast::set_autocast_dtype(device.type(), at::kBFloat16);
  }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device.type(), before_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool before_;
};

// %% forward in bfloat16, backward and the reduction in float
net.zero_grad();
torch::Tensor logits;
{
  Autocast low_precision;
  logits = net(rows.x);
}
show(logits.dtype());
auto low = loss_of(logits.to(torch::kFloat), rows.y);
low.backward();
const double lost = std::abs(low.item<double>() - loss_of(net->forward(rows.x), rows.y).item<double>());
if (logits.dtype() != torch::kBFloat16 || lost > 0.05) throw std::runtime_error("autocast did not do what it is for");
net->head->weight.grad().dtype()

// %% [markdown]
// ## What you have now
// 1. Passes per update: tokens of an update, divided by tokens of a pass and by the ranks; it must come out even.
// 2. Each rank reads rows of its own.
// 3. The loss is divided by the passes, and only the last pass is synchronised.
// 4. Clip, log and save after that; the main process speaks.
//
// Published runs of such scripts are about 1.9, 3.8 and 7.5 times as fast on 2, 4 and 8 GPUs as on one. What your machine gives is for you to measure: ranks that share the
// cores of one machine gain little.
