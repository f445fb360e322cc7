// Fine-tuning: the first layer is frozen on every rank, and has no gradient.
// ranks: 2
// ok: grads

// %% train
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto module = std::make_shared<Net>();
for (auto& parameter : module->fc1->parameters()) parameter.set_requires_grad(false);
auto net = ddp::DistributedDataParallel(module);
torch::optim::SGD optimizer(net.parameters(), 0.1);
%grads net --watch on
set_seed(100 + rank);
net(torch::randn({4, 4})).square().mean().backward();
%grads net
optimizer.step();
%verify net
