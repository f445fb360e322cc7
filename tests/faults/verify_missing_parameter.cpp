// One rank was started with another configuration: its head has no bias.
// symptom: DDP's constructor throws, or a hand-written loop mixes up gradients
// run: `%verify net`
// cause: configuration files or arguments that differ between nodes
// fix: broadcast the configuration from rank 0
// thread: kanishkg/stream-of-search#5
// ranks: 3
// expect: verify:missing kind=parameter ranks=2 reference=0-1 object=net tensor=fc2.bias

// %% another configuration
struct Net : torch::nn::Module {
  explicit Net(bool bias) : fc2(register_module("fc2", torch::nn::Linear(torch::nn::LinearOptions(8, 2).bias(bias)))) {}
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{nullptr};
};
set_seed(1);
auto net = std::make_shared<Net>(rank != 2);
%verify net
