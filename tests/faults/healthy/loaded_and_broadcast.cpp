// Rank 0 loads the checkpoint, and all others get it from there.
// ranks: 2
// ok: verify

// %% resume
#include <sstream>
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
if (rank == 0) {
  std::stringstream checkpoint;
  set_seed(7);
  torch::save(std::make_shared<Net>(), checkpoint);
  torch::load(net.ptr(), checkpoint);
}
net.sync_module_states(0);
%verify net
