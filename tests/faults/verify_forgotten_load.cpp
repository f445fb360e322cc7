// A checkpoint that rank 0 alone has loaded, after the wrapper made the replicas equal.
// symptom: training goes on from the checkpoint with a jump in the loss
// run: `%verify net` after loading
// cause: `torch::load` in `if (rank == 0)`, after the wrapper's broadcast
// fix: load on every rank, or load before wrapping, or `net.sync_module_states(0)`
// thread: vllm-project/speculators#926
// ranks: 3
// expect: verify:mismatch kind=parameter ranks=0 reference=1-2 object=net tensor=fc1.weight

// %% resume
#include <sstream>
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(7);
std::stringstream checkpoint;
torch::save(std::make_shared<Net>(), checkpoint);
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
if (rank == 0) torch::load(net.ptr(), checkpoint);
%verify net
