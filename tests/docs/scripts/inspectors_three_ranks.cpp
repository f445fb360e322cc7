// What docs/inspectors.md quotes of sessions with three ranks.
// run: -n 3

// %% a layer that differs in one element
torch::nn::Linear net(16, 8);
{
  torch::NoGradGuard guard;
  net->weight.fill_(1);
  net->bias.fill_(0.5);
  if (rank == 1) net->weight[3][4] += 0.001;
}
// %% verify tags=["expects-finding=verify:mismatch"]
%verify net
%verify net->bias

// %% fingerprints
for (const auto& [hash, nans, infs, norm, largest] : inspect::fingerprint(net->parameters()))
  std::cout << std::hex << std::setfill('0') << std::setw(16) << hash[0] << std::setw(16) << hash[1] << std::dec
            << "  NaN " << nans << "  norm " << norm << "  largest " << largest << '\n';

// %% a perceptron
struct Perceptron : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 8));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 3));
  Perceptron() {
    torch::NoGradGuard guard;
    for (auto& each : parameters()) each.fill_(0.125);
  }
  torch::Tensor forward(torch::Tensor x) { return second(torch::relu(first(x))); }
};
auto model = std::make_shared<Perceptron>();
torch::optim::SGD optimizer(model->parameters(), 0.001);
for (auto& each : model->parameters()) each.mutable_grad() = torch::full_like(each, 1e-5);
auto x = torch::ones({2, 4}) + rank;
%verify model --every 10
// %% watch tags=["expects-finding=verify:mismatch"]
for (int step = 1; step <= 40; ++step) {
  if (step == 14 && rank == 1) {
    torch::NoGradGuard guard;
    model->second->bias[2] += 0.01;
  }
  inspect::step(optimizer);
}
// %% watch
%verify model --every 0

// %% a wrapper
auto wrapped = ddp::DistributedDataParallel(std::make_shared<Perceptron>());
%grads wrapped --watch on
wrapped(x).sum().backward();
// %% grads
%grads wrapped
// %% NaN on one rank
wrapped.zero_grad();
wrapped(rank == 1 ? x.neg().sqrt() : x).sum().backward();
// %% grads tags=["expects-finding=grads:nan"]
%grads wrapped
// %% a sum that is not divided
auto twin = std::make_shared<Perceptron>();
twin->forward(x).sum().backward();
for (auto& each : twin->parameters()) {
  dist::all_reduce(each.grad());
  if (rank != 2) each.mutable_grad() /= world_size;
}
// %% grads tags=["expects-finding=grads:mismatch"]
%grads twin
// %% ranks tags=["expects-finding=ranks:mismatch"]
if (rank == 1) setenv("NCCL_ALGO", "Ring", 1);
%ranks
// %% the environment as before
unsetenv("NCCL_ALGO");

// %% nan tags=["expects-finding=nan:nan"]
%%nan
auto logarithm = (model->forward(x) - 10).log().sum();
logarithm.backward();
// %% nan tags=["expects-finding=nan:nan"]
%%nan
auto w = torch::tensor({0.0, 4.0}).set_requires_grad(true);
auto root = rank == 1 ? w.sqrt() : w * 2;
(root * torch::tensor({0.0, 1.0})).sum().backward();
// %% nan
%%nan
auto scores = torch::zeros({3, 3}).set_requires_grad(true);
auto mask = torch::ones({3, 3}, torch::kBool).triu(1);
torch::softmax(scores.masked_fill(mask, -INFINITY), -1).square().sum().backward();

// %% equal replicas again
dist::broadcast(model->second->bias.detach(), 0);
// %% lockstep
%%lockstep
optimizer.zero_grad();
model->forward(x).sum().backward();
for (auto& each : model->parameters()) {
  dist::all_reduce(each.grad());
  each.mutable_grad() /= world_size;
}
optimizer.step();
// %% lockstep tags=["expects-finding=lockstep:mismatch"]
%%lockstep
optimizer.zero_grad();
model->forward(x).sum().backward();
optimizer.step();
// %% lockstep tags=["expects-finding=lockstep:op_mismatch"]
%%lockstep
auto y = torch::ones({3}).set_requires_grad(true);
auto z = rank == 1 ? y.exp() : y.sin();
z.sum().backward();

// %% a kernel that gives other results each time
int launches = 0;
torch::Tensor scatter_mean(const torch::Tensor& nodes) {
  at::RecordFunction record(at::RecordScope::FUNCTION);
  const std::vector<c10::IValue> inputs = {nodes};
  if (record.isActive()) record.before("scatter_mean", c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  const at::RecordFunctionGuard inside(false);
  auto result = nodes.mean(0) + 1e-6 * ++launches;
  if (record.isActive()) record.setOutputs(std::vector<c10::IValue>{result});
  return result;
}
// %% lockstep self tags=["expects-finding=lockstep:mismatch"]
%%lockstep --self
auto pooled = scatter_mean(torch::ones({8, 4}) * 3).square().sum();
// %% lockstep self
%%lockstep --self
auto scaled = (torch::ones({4}) * ++launches).sum();
// %% lockstep self
%%lockstep --self
optimizer.zero_grad();
torch::dropout(model->forward(x), 0.5, true).sum().backward();
optimizer.step();
