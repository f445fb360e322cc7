// The models that DistributedDataParallel is measured on: those of compare.py's Python side, number for number.
#pragma once
#include <torch/torch.h>

#include <string>

namespace lockstep::benchmark {

namespace nn = torch::nn;

// 200 small parameters: what a reduction costs per parameter shows here.
struct ManyImpl : nn::Module {
  ManyImpl() {
    for (int i = 0; i < 100; ++i) layers.push_back(register_module("l" + std::to_string(i), nn::Linear(16, 16)));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : layers) x = torch::relu(layer(x));
    return x;
  }
  std::vector<nn::Linear> layers;
};

struct MlpImpl : nn::Module {
  MlpImpl()
      : layers(register_module("layers",
                               nn::Sequential(nn::Linear(784, 1024), nn::ReLU(), nn::Linear(1024, 1024), nn::ReLU(),
                                              nn::Linear(1024, 1024), nn::ReLU(), nn::Linear(1024, 10)))) {}
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
  nn::Sequential layers;
};

inline nn::Conv2d conv(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

struct BlockImpl : nn::Module {
  BlockImpl(int64_t in, int64_t out, int64_t stride)
      : c1(register_module("c1", conv(in, out, 3, stride))),
        b1(register_module("b1", nn::BatchNorm2d(out))),
        c2(register_module("c2", conv(out, out, 3, 1))),
        b2(register_module("b2", nn::BatchNorm2d(out))) {
    if (stride != 1 || in != out) {
      shortcut = register_module("short", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = b2(c2(torch::relu(b1(c1(x)))));
    return torch::relu(y + (shortcut.is_empty() ? x : shortcut->forward(x)));
  }
  nn::Conv2d c1;
  nn::BatchNorm2d b1;
  nn::Conv2d c2;
  nn::BatchNorm2d b2;
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Block);

struct ConvImpl : nn::Module {
  ConvImpl()
      : stem(register_module("stem", nn::Sequential(conv(3, 64, 3, 1), nn::BatchNorm2d(64), nn::ReLU()))),
        blocks(register_module(
            "blocks", nn::Sequential(Block(64, 64, 1), Block(64, 128, 2), Block(128, 256, 2), Block(256, 256, 1)))),
        fc(register_module("fc", nn::Linear(256, 10))) {}
  torch::Tensor forward(const torch::Tensor& x) { return fc(blocks->forward(stem->forward(x)).mean({2, 3})); }
  nn::Sequential stem, blocks;
  nn::Linear fc;
};

// A post-norm encoder layer with the fused attention that PyTorch's own layer uses.
struct EncoderLayerImpl : nn::Module {
  EncoderLayerImpl(int64_t width, int64_t heads)
      : heads(heads),
        in(register_module("in", nn::Linear(width, 3 * width))),
        out(register_module("out", nn::Linear(width, width))),
        up(register_module("up", nn::Linear(width, 4 * width))),
        down(register_module("down", nn::Linear(4 * width, width))),
        n1(register_module("n1", nn::LayerNorm(nn::LayerNormOptions({width})))),
        n2(register_module("n2", nn::LayerNorm(nn::LayerNormOptions({width})))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const int64_t n = x.size(0), t = x.size(1), d = x.size(2);
    const auto parts = in(x).view({n, t, 3, heads, d / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto attended = torch::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    const auto y = n1(x + out(attended.transpose(1, 2).reshape({n, t, d})));
    return n2(y + down(torch::relu(up(y))));
  }
  int64_t heads;
  nn::Linear in, out, up, down;
  nn::LayerNorm n1, n2;
};
TORCH_MODULE(EncoderLayer);

struct TransformerImpl : nn::Module {
  TransformerImpl()
      : tok(register_module("tok", nn::Embedding(4096, 256))),
        pos(register_parameter("pos", torch::randn({128, 256}) * 0.02)),
        head(register_module("head", nn::Linear(256, 4096))) {
    for (int i = 0; i < 4; ++i) layers.push_back(register_module("layer" + std::to_string(i), EncoderLayer(256, 4)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = tok(x) + pos;
    for (auto& layer : layers) y = layer(y);
    return head(y).flatten(0, 1);
  }
  nn::Embedding tok;
  torch::Tensor pos;
  nn::Linear head;
  std::vector<EncoderLayer> layers;
};

}  // namespace lockstep::benchmark
