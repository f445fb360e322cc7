// The models that the tests train: small ones of each kind that trips a data-parallel wrapper.
#pragma once
#include <torch/torch.h>

namespace lockstep::test {

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(int64_t hidden = 16)
      : fc1(register_module("fc1", torch::nn::Linear(8, hidden))),
        fc2(register_module("fc2", torch::nn::Linear(hidden, hidden))),
        fc3(register_module("fc3", torch::nn::Linear(hidden, 4))) {}
  torch::Tensor forward(const torch::Tensor& x) { return fc3(torch::relu(fc2(torch::relu(fc1(x.flatten(1)))))); }
  torch::nn::Linear fc1, fc2, fc3;
};
TORCH_MODULE(Mlp);

// Convolutions, BatchNorm with its buffers.
struct ConvNetImpl : torch::nn::Module {
  ConvNetImpl()
      : conv1(register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1).bias(false)))),
        norm1(register_module("norm1", torch::nn::BatchNorm2d(4))),
        conv2(register_module("conv2",
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3).stride(2).padding(1).bias(false)))),
        norm2(register_module("norm2", torch::nn::BatchNorm2d(8))),
        fc(register_module("fc", torch::nn::Linear(8, 4))) {}
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm1(conv1(x.view({-1, 1, 2, 4}))));
    return fc(torch::relu(norm2(conv2(x))).mean({2, 3}));
  }
  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d norm1;
  torch::nn::Conv2d conv2;
  torch::nn::BatchNorm2d norm2;
  torch::nn::Linear fc;
};
TORCH_MODULE(ConvNet);

// Two encoder layers over 4 tokens of 8 numbers.
struct EncoderImpl : torch::nn::Module {
  explicit EncoderImpl(double dropout = 0)
      : in(register_module("in", torch::nn::Linear(2, 8))),
        encoder(register_module(
            "encoder", torch::nn::TransformerEncoder(
                           torch::nn::TransformerEncoderLayer(
                               torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(dropout)),
                           2))),
        out(register_module("out", torch::nn::Linear(8, 4))) {}
  torch::Tensor forward(const torch::Tensor& x) { return out(encoder(in(x.view({-1, 4, 2}).transpose(0, 1))).mean(0)); }
  torch::nn::Linear in;
  torch::nn::TransformerEncoder encoder;
  torch::nn::Linear out;
};
TORCH_MODULE(Encoder);

// A table with sparse gradients before a dense layer. Tokens are made from the signs of the inputs.
struct BagImpl : torch::nn::Module {
  explicit BagImpl(bool sparse = true)
      : bag(register_module(
            "bag", torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(32, 6).sparse(sparse).mode(torch::kMean)))),
        fc(register_module("fc", torch::nn::Linear(6, 4))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const auto tokens = (x * 8).to(torch::kLong).remainder(32);
    return fc(bag(tokens));
  }
  torch::nn::EmbeddingBag bag;
  torch::nn::Linear fc;
};
TORCH_MODULE(Bag);

// One weight under two names.
struct TiedImpl : torch::nn::Module {
  TiedImpl()
      : first(register_module("first", torch::nn::Linear(8, 8))),
        out(register_module("out", torch::nn::Linear(8, 4))),
        second_weight(register_parameter("second_weight", first->weight)) {}
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::tanh(torch::tanh(first(x)).mm(second_weight))); }
  torch::nn::Linear first, out;
  torch::Tensor second_weight;
};
TORCH_MODULE(Tied);

// `skipped` takes no part where `skip` is set.
struct PartlyUsedImpl : torch::nn::Module {
  PartlyUsedImpl()
      : used(register_module("used", torch::nn::Linear(8, 8))),
        skipped(register_module("skipped", torch::nn::Linear(8, 8))),
        out(register_module("out", torch::nn::Linear(8, 4))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = torch::tanh(used(x));
    if (!skip) y = y + skipped(x);
    return out(y);
  }
  bool skip = true;
  torch::nn::Linear used, skipped, out;
};
TORCH_MODULE(PartlyUsed);

// A product whose backward runs another backward over the same parameter, as activation checkpointing does.
struct CheckpointedProduct : torch::autograd::Function<CheckpointedProduct> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    context->save_for_backward({x, weight});
    return x.mm(weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const torch::AutoGradMode on(true);
    const auto x = saved[0].detach().requires_grad_();
    x.mm(saved[1]).backward(gradients[0]);
    return {x.grad(), torch::Tensor()};
  }
};

// `weight` gets two gradients in each backward, both within nested ones, and before `first` gets its own.
struct CheckpointedImpl : torch::nn::Module {
  CheckpointedImpl()
      : first(register_module("first", torch::nn::Linear(8, 8))),
        weight(register_parameter("weight", torch::eye(8) * 0.5)) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return CheckpointedProduct::apply(CheckpointedProduct::apply(first(x), weight), weight);
  }
  torch::nn::Linear first;
  torch::Tensor weight;
};

}  // namespace lockstep::test
