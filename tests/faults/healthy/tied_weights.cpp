// Input and output embedding share their weight, which the module lists once.
// ranks: 2
// ok: grads

// %% train
struct Net : torch::nn::Module {
  torch::nn::Embedding embed{register_module("embed", torch::nn::Embedding(10, 4))};
  torch::Tensor forward(const torch::Tensor& words) { return torch::linear(embed(words), embed->weight); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
torch::optim::SGD optimizer(net.parameters(), 0.1);
%grads net --watch on
set_seed(100 + rank);
auto words = torch::randint(10, {8});
torch::nn::functional::cross_entropy(net(words), words).backward();
%grads net
optimizer.step();
%verify net
