// One rank's head is in half precision.
// symptom: an error about dtypes in a collective, or replicas that diverge slowly
// run: `%verify net`
// cause: the precision is chosen by the capability of a rank's device
// fix: choose it once, for all ranks
// ranks: 2
// expect: verify:dtype_mismatch kind=parameter ranks=0-1 object=net tensor=fc2.weight

// %% by what the device can do
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
const bool fast_half = rank == 1;
if (fast_half) net->fc2->to(torch::kHalf);
%verify net
