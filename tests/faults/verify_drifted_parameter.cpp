// A replica that was written to on one rank only, in the middle of training.
// symptom: the loss falls, but the evaluated model is worse than the loss suggests
// run: `%verify net`
// cause: code in `if (rank == 0)` changes parameters (clipping, an EMA, model surgery)
// fix: run it on every rank, or `net.sync_module_states(0)` afterwards
// ranks: 3
// expect: verify:mismatch kind=parameter ranks=0 reference=1-2 object=net tensor=fc2.weight step=3

// %% train, and clip the weights
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
torch::optim::SGD optimizer(net.parameters(), 0.1);
set_seed(100 + rank);
for (int step = 0; step < 3; ++step) {
  net.zero_grad();
  net(torch::randn({4, 4})).square().mean().backward();
  optimizer.step();
}
if (rank == 0) {
  torch::NoGradGuard guard;
  net->fc2->weight.clamp_(-0.1, 0.1);
}
%verify net
