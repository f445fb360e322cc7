// %% [markdown]
// # The 2 × 2 run that is not the same
// A model is trained on four ranks: two halves of each layer (tensor parallelism) times two halves of the batch (data parallelism). The loss goes
// down, nothing hangs, the replicas agree. Is it the training that one process would do?
//
// Loss curves do not tell: they are close for days. Here both trainings are recorded, value by value, and compared: with how much *rounding* may
// change each value, which is measured by running the reference with all of its values changed by half a unit in the last place.
//
//     lockstep run scripts/debugging/the-2-by-2-run-that-is-not-the-same.cpp -n 4

// %% four ranks, in two ways
#include <filesystem>

if (world_size % 2 != 0) throw std::runtime_error("two ranks share each layer: run this with -n 4, or -n 2");

const auto tensor_group = dist::new_subgroups(2).first;  // 0 and 1, 2 and 3: ranks with the same samples
std::vector<std::vector<int>> same_half(2);              // 0 and 2, 1 and 3: ranks with the same half of the layers
for (int each = 0; each < world_size; ++each) same_half[each % 2].push_back(each);
const auto data_group = dist::new_subgroups_by_enumeration(same_half).first;

// %% [markdown]
// ## Two halves of a layer
// The first layer is cut by its outputs, the second by its inputs: each rank has half of the hidden values, and the sum of both ranks' results is the
// result. So one sum is needed in forward, behind the second layer, and one in backward, before the first: a gradient with respect to its input comes
// from both halves.

// %% sums over the ranks of a layer
struct SumInForward : torch::autograd::Function<SumInForward> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, torch::Tensor x) {
    auto sum = x.clone();
    dist::all_reduce(sum, dist::ReduceOp::SUM, tensor_group);
    return sum;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, torch::autograd::tensor_list gradients) {
    return gradients;
  }
};
struct SumInBackward : torch::autograd::Function<SumInBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, torch::Tensor x) { return x.clone(); }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*, torch::autograd::tensor_list gradients) {
    auto sum = gradients[0].clone();
    dist::all_reduce(sum, dist::ReduceOp::SUM, tensor_group);
    return {sum};
  }
};

// %% the model, whole or in two halves
struct Block : torch::nn::Module {
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})))};
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(8, 32))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(torch::nn::LinearOptions(32, 4).bias(false)))};

  void keep_half(int half) {
    torch::NoGradGuard no_grad;
    fc1->weight.set_data(fc1->weight.chunk(2, 0)[half].clone());
    fc1->bias.set_data(fc1->bias.chunk(2, 0)[half].clone());
    fc2->weight.set_data(fc2->weight.chunk(2, 1)[half].clone());
  }
};

struct Layout {
  bool halves = false;         // two ranks share each layer
  int batches = 1, batch = 0;  // how many parts of the batch there are, and which one is this rank's
  bool sums_in_backward = true;
};

// %% one training for both
void train(inspect::CompareRecorder& recorder, Layout layout) {
  torch::manual_seed(1);
  auto net = std::make_shared<Block>();
  if (layout.halves) net->keep_half(rank % 2);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));
  recorder.model(net);
  for (int step = 0; step < 100 && !recorder.is_over(); ++step) {
    torch::manual_seed(2 + step);
    auto x = torch::randn({48, 8}).chunk(layout.batches)[layout.batch];
    auto y = torch::randn({48, 4}).chunk(layout.batches)[layout.batch];
    optimizer.zero_grad();
    recorder.samples({x, y});
    auto hidden = net->norm(x);
    if (layout.halves && layout.sums_in_backward) hidden = SumInBackward::apply(hidden);
    auto out = net->fc2(torch::relu(net->fc1(hidden)));
    if (layout.halves) out = SumInForward::apply(out);
    out = recorder.output("fc2", out);
    recorder.loss(torch::mse_loss(out, y)).backward();
    if (layout.batches > 1)
      for (auto& each : net->parameters()) {
        dist::all_reduce(each.mutable_grad(), dist::ReduceOp::SUM, data_group);
        each.mutable_grad().div_(layout.batches);
      }
    recorder.step(optimizer);
  }
}

// %% the reference: one process
inspect::record_reference("layouts", [](auto& recorder) { train(recorder, {}); });

// %% [markdown]
// ## The run on four ranks

// %% two by two
inspect::record_candidate("layouts", [](auto& recorder) { train(recorder, {.halves = true, .batches = world_size / 2, .batch = rank / 2}); });
%compare layouts

// %% [markdown]
// ## And one that is not the same
// The sum in backward is left out. Nothing fails. Which parameter is the first whose gradient is wrong, and why that one?
//
// <details><summary>Answer</summary>
// `norm`: it stands before the cut, so its gradient comes from both halves of the layer, and each rank has its own half of it. What stands behind the
// cut, `fc1` and `fc2`, is right in the first step. From the second on all differ, since `norm` does: a difference has one first place.
// </details>

// %% without the sum in backward tags=["expects-finding"]
inspect::record_candidate("layouts", [](auto& recorder) {
  train(recorder, {.halves = true, .batches = world_size / 2, .batch = rank / 2, .sums_in_backward = false});
});
%compare layouts

// %% clean up
if (rank == 0) std::filesystem::remove_all("layouts");
