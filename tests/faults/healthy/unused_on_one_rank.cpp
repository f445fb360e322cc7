// A head that one rank's batch does not need, with `find_unused_parameters`.
// ranks: 2
// ok: grads

// %% train
struct Net : torch::nn::Module {
  torch::nn::Linear boxes{register_module("boxes", torch::nn::Linear(4, 4))};
  torch::nn::Linear masks{register_module("masks", torch::nn::Linear(4, 2))};
  torch::Tensor forward(const torch::Tensor& x, bool has_masks) {
    auto loss = boxes(x).square().mean();
    return has_masks ? loss + masks(x).square().mean() : loss;
  }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>(), ddp::Options().find_unused_parameters(true));
torch::optim::SGD optimizer(net.parameters(), 0.1);
%grads net --watch on
set_seed(100 + rank);
net(torch::randn({4, 4}), rank == 0).backward();
%grads net
optimizer.step();
%verify net
