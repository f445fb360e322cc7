// %% [markdown]
// # The same training on a device and on the CPU
// The ranks train a model with `DistributedDataParallel` on their devices, each on its share of every batch. Beside it, each rank trains the same
// model alone on the CPU, on the complete batches. In exact arithmetic the two are one training: the mean of the shares' gradients is the gradient
// of the batch. So the parameters have to agree up to rounding, and in float64 rounding is small enough to show any other difference.
//
//     lockstep run scripts/devices/parity-with-the-cpu.cpp -n 2
//
// On ranks without GPUs both sides run on the CPU.

// %% a model, and its batches
struct Net : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(32, 128))};
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({128})))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(128, 128))};
  torch::nn::Linear last{register_module("last", torch::nn::Linear(128, 10))};

  torch::Tensor forward(const torch::Tensor& x) { return last(torch::gelu(second(norm(torch::tanh(first(x)))))); }
};

std::shared_ptr<Net> make_net(at::ScalarType dtype) {
  set_seed(7);
  auto net = std::make_shared<Net>();  // on the CPU, so that all ranks draw the same numbers on any device
  net->to(dtype);
  return net;
}

struct Batch {
  torch::Tensor x, y;  // on the CPU, all ranks' rows
};
const int kSteps = 30;
const int64_t kRowsOfRank = 16;

std::vector<Batch> make_batches(at::ScalarType dtype) {
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(11);
  std::vector<Batch> batches;
  for (int i = 0; i < kSteps; ++i)
    batches.push_back({torch::randn({kRowsOfRank * world_size, 32}, generator, torch::kDouble).to(dtype),
                       torch::randint(10, {kRowsOfRank * world_size}, generator, torch::kLong)});
  return batches;
}

// %% the two trainings
void train(const std::vector<torch::Tensor>& parameters, const std::vector<Batch>& batches, int64_t begin, int64_t rows, torch::Device where,
           const std::function<torch::Tensor(const torch::Tensor&)>& forward) {
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
  for (const Batch& batch : batches) {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(forward(batch.x.narrow(0, begin, rows).to(where)), batch.y.narrow(0, begin, rows).to(where)).backward();
    optimizer.step();
  }
}

double largest_difference(at::ScalarType dtype) {  // relative to the largest value of each parameter
  const auto batches = make_batches(dtype);
  auto alone = make_net(dtype);
  train(alone->parameters(), batches, 0, kRowsOfRank * world_size, torch::kCPU, [&](const torch::Tensor& x) { return alone->forward(x); });
  auto replica = make_net(dtype);
  replica->to(device);
  auto wrapped = ddp::DistributedDataParallel(replica);
  train(wrapped.parameters(), batches, rank * kRowsOfRank, kRowsOfRank, device, [&](const torch::Tensor& x) { return wrapped(x); });
  double largest = 0;
  for (const auto& parameter : alone->named_parameters()) {
    const auto reference = parameter.value().detach();
    const auto other = replica->named_parameters()[parameter.key()].detach().to(torch::kCPU);
    largest = std::max(largest, ((other - reference).abs().max() / reference.abs().max()).item<double>());
  }
  return largest;
}

// %% in float64
const double exact = largest_difference(torch::kDouble);
if (rank == 0) std::cout << "figure parity_float64 " << exact << " relative\n";
if (!(exact < 1e-10)) throw std::runtime_error("the parameters differ from those of the CPU by " + std::to_string(exact) + " of their size");

// %% in float32
const double rounded = largest_difference(torch::kFloat);
if (rank == 0) std::cout << "figure parity_float32 " << rounded << " relative\n";
if (!(rounded < 1e-3)) throw std::runtime_error("the parameters differ from those of the CPU by " + std::to_string(rounded) + " of their size");
