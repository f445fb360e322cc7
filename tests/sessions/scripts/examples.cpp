// %% [markdown]
// # Whole programs as cells
// Programs of the kind that LibTorch's tutorials have, pasted into one cell each: includes, classes, functions, main. Calling main() runs them.

// %% a regression: a polynomial of degree four, fitted by gradient descent
#include <torch/torch.h>
#include <cstdlib>
#include <iostream>

constexpr int kDegree = 4;

torch::Tensor powers(torch::Tensor x) {
  std::vector<torch::Tensor> columns;
  for (int64_t exponent = 1; exponent <= kDegree; ++exponent) columns.push_back(x.pow(exponent));
  return torch::stack(columns, 1);
}

int main() {
  torch::manual_seed(1);
  const auto weight = torch::randn({kDegree, 1});
  const auto bias = torch::full({1}, 2.0);
  torch::nn::Linear line(kDegree, 1);
  torch::optim::Adam optimizer(line->parameters(), torch::optim::AdamOptions(0.05));
  float loss = 0;
  for (int step = 0; step < 400; ++step) {
    const auto x = powers(torch::rand({32}) * 2 - 1);
    const auto y = x.mm(weight) + bias;
    optimizer.zero_grad();
    auto output = torch::mse_loss(line(x), y);
    loss = output.item<float>();
    output.backward();
    optimizer.step();
  }
  if (loss > 0.5f) {
    std::cerr << "did not learn: " << loss << std::endl;
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}

// %% runs
main()

// %% autograd by hand: gradients, higher gradients, a function of one's own
#include <torch/torch.h>

using namespace torch::autograd;

class LinearFunction : public Function<LinearFunction> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor input, torch::Tensor weight, torch::Tensor bias = torch::Tensor()) {
    ctx->save_for_backward({input, weight, bias});
    auto output = input.mm(weight.t());
    if (bias.defined()) output += bias.unsqueeze(0).expand_as(output);
    return output;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grad_outputs) {
    auto saved = ctx->get_saved_variables();
    auto grad_output = grad_outputs[0];
    auto grad_bias = saved[2].defined() ? grad_output.sum(0) : torch::Tensor();
    return {grad_output.mm(saved[1]), grad_output.t().mm(saved[0]), grad_bias};
  }
};

void gradients_of_gradients() {
  torch::nn::Linear model(4, 3);
  auto input = torch::randn({3, 4}).requires_grad_(true);
  auto loss = torch::nn::MSELoss()(model(input), torch::randn({3, 3}));
  auto grad_input = torch::autograd::grad({loss}, {input}, {torch::ones_like(loss)}, true, true)[0];
  auto penalty = torch::pow(grad_input.norm(2, 1) - 1, 2).mean();
  (loss + penalty).backward();
  if (!input.grad().defined()) throw std::logic_error("no gradient");
}

int main() {
  auto x = torch::ones({2, 2}, torch::requires_grad());
  auto out = ((x + 2) * (x + 2) * 3).mean();
  out.backward();
  if (!torch::allclose(x.grad(), torch::full({2, 2}, 4.5))) return 1;
  gradients_of_gradients();
  auto a = torch::randn({2, 3}).requires_grad_(), w = torch::randn({4, 3}).requires_grad_();
  LinearFunction::apply(a, w).sum().backward();
  return torch::allclose(w.grad()[0], a.detach().sum(0)) ? 0 : 2;
}

// %% runs, too
main()

// %% a small GAN: two modules, two optimizers, a data set, checkpoints
#include <torch/torch.h>
#include <cmath>
#include <cstdio>

const int64_t kNoiseSize = 8;
const int64_t kBatchSize = 16;
const int64_t kNumberOfEpochs = 2;

struct GeneratorImpl : torch::nn::Module {
  explicit GeneratorImpl(int noise_size)
      : conv1(torch::nn::ConvTranspose2dOptions(noise_size, 16, 4).bias(false)),
        norm1(16),
        conv2(torch::nn::ConvTranspose2dOptions(16, 8, 3).stride(2).padding(1).bias(false)),
        norm2(8),
        conv3(torch::nn::ConvTranspose2dOptions(8, 1, 2).stride(1).padding(0).bias(false)) {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
    register_module("norm2", norm2);
    register_module("conv3", conv3);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm1(conv1(x)));
    x = torch::relu(norm2(conv2(x)));
    return torch::tanh(conv3(x));
  }
  torch::nn::ConvTranspose2d conv1, conv2, conv3;
  torch::nn::BatchNorm2d norm1, norm2;
};
TORCH_MODULE(Generator);

torch::nn::Sequential create_discriminator() {
  return torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 4).stride(2).padding(1).bias(false)),
      torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 4).stride(2).padding(1).bias(false)), torch::nn::BatchNorm2d(16),
      torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 1, 2).stride(1).padding(0).bias(false)), torch::nn::Sigmoid());
}

struct Noise : torch::data::datasets::Dataset<Noise> {
  torch::data::Example<> get(size_t index) override {
    return {torch::sin(torch::arange(64, torch::kFloat) * (1 + index % 3)).view({1, 8, 8}), torch::zeros({1})};
  }
  torch::optional<size_t> size() const override { return 64; }
};

int main() {
  torch::manual_seed(1);
  torch::Device device(torch::kCPU);
  Generator generator(kNoiseSize);
  generator->to(device);
  auto discriminator = create_discriminator();
  discriminator->to(device);
  auto data_set = Noise().map(torch::data::transforms::Normalize<>(0.5, 0.5)).map(torch::data::transforms::Stack<>());
  const int64_t batches = std::ceil(data_set.size().value() / static_cast<double>(kBatchSize));
  auto loader = torch::data::make_data_loader(std::move(data_set), torch::data::DataLoaderOptions().batch_size(kBatchSize));
  torch::optim::Adam generator_optimizer(generator->parameters(), torch::optim::AdamOptions(2e-4).betas(std::make_tuple(0.5, 0.5)));
  torch::optim::Adam discriminator_optimizer(discriminator->parameters(), torch::optim::AdamOptions(2e-4).betas(std::make_tuple(0.5, 0.5)));
  int64_t steps = 0;
  for (int64_t epoch = 1; epoch <= kNumberOfEpochs; ++epoch) {
    for (torch::data::Example<>& batch : *loader) {
      discriminator->zero_grad();
      auto real_images = batch.data.to(device);
      auto real_output = discriminator->forward(real_images).view({-1});
      auto real_labels = torch::empty_like(real_output).uniform_(0.8, 1.0);
      auto d_loss_real = torch::binary_cross_entropy(real_output, real_labels);
      d_loss_real.backward();
      auto noise = torch::randn({batch.data.size(0), kNoiseSize, 1, 1}, device);
      auto fake_images = generator->forward(noise);
      auto fake_output = discriminator->forward(fake_images.detach()).view({-1});
      auto d_loss_fake = torch::binary_cross_entropy(fake_output, torch::zeros_like(fake_output));
      d_loss_fake.backward();
      discriminator_optimizer.step();
      generator->zero_grad();
      fake_output = discriminator->forward(fake_images).view({-1});
      auto g_loss = torch::binary_cross_entropy(fake_output, torch::ones_like(fake_output));
      g_loss.backward();
      generator_optimizer.step();
      ++steps;
    }
  }
  std::printf("%ld steps of %ld\n", static_cast<long>(steps), static_cast<long>(batches * kNumberOfEpochs));
  return steps == batches * kNumberOfEpochs ? 0 : 1;
}

// %% runs as well
main()
