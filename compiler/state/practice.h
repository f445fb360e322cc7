// What most sessions compile in their first cells: a module, an optimizer, a loop that trains, types of their own in
// containers. See CellCompiler::practise().
#pragma once

namespace lockstep::compiler {

/// It is one function, so that clang does not suggest its names for a name that a cell has mistyped.
constexpr const char* kPractice = R"(inline void __lockstep_practice() {
  struct Net : torch::nn::Module {
    torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(8, 16))};
    torch::nn::Linear fc2{nullptr};
    Net() { fc2 = register_module("fc2", torch::nn::Linear(16, 4)); }
    torch::Tensor forward(torch::Tensor x) { return fc2(torch::relu(fc1->forward(x))); }
  };
  struct HeldImpl : torch::nn::Module {
    torch::nn::Sequential layers{torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Linear(16, 4)};
    HeldImpl() { register_module("layers", layers); }
    torch::Tensor forward(torch::Tensor x) { return layers->forward(x); }
  };
  TORCH_MODULE(Held);
  struct Sample {
    std::string name;
    double value = 0;
  };

  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  Held held;
  auto parallel = ddp::DistributedDataParallel(std::make_shared<Net>());
  torch::optim::SGD sgd(net->parameters(), 0.1);
  torch::optim::AdamW adamw(held->parameters(), torch::optim::AdamWOptions(1e-3));
  auto x = torch::randn({4, 8});
  for (int step = 0; step < 3; ++step) {
    sgd.zero_grad();
    auto loss = torch::mse_loss(net->forward(x), held(x)) + parallel(x).square().mean();
    loss.backward();
    for (auto& parameter : net->parameters()) dist::all_reduce(parameter.mutable_grad());
    sgd.step();
    adamw.step();
    std::cout << "step " << step << ": " << loss << ' ' << loss.item<float>() << std::endl;
    std::printf("%.4f\n", loss.item<double>());
  }
  std::vector<Sample> samples{{"a", 1}};
  samples.push_back({"b", 2});
  std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) { return a.value < b.value; });
  std::map<std::string, Sample> table{{"a", samples[0]}};
  std::function<double(int)> value = [&](int i) { return samples[i].value + table["a"].value; };
  std::cout << value(0);
}
)";

}  // namespace lockstep::compiler
