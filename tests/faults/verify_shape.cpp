// The size of the head follows the classes that a rank has seen in its share of the data.
// symptom: shapes do not match in all_reduce, or it hangs
// run: `%verify net`
// cause: a vocabulary or label set built from each rank's own shard
// fix: build it from all data on one rank, and broadcast it
// ranks: 3
// expect: verify:shape_mismatch kind=parameter ranks=1 reference=0,2 object=net tensors=fc2.weight,fc2.bias

// %% classes of the own shard
struct Net : torch::nn::Module {
  explicit Net(int classes) : fc2(register_module("fc2", torch::nn::Linear(8, classes))) {}
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{nullptr};
};
set_seed(1);
const int classes = rank == 1 ? 9 : 10;
auto net = std::make_shared<Net>(classes);
%verify net
