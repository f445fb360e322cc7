// What watch_grads costs: forward and backward of a perceptron of some 25 M parameters with an observer and without, taking turns
// round by round in the same run, beside one read of its gradients (a plain sum). One rank, one thread. Prints one JSON line per
// size of batch: medians in seconds, and ratios.
//
//   grads_benchmark [ROUNDS] [BATCH]...
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/inspect.h"

namespace {

using namespace lockstep;

constexpr int64_t kWidth = 1448, kLayers = 12;

volatile double sink;  // keeps results alive

void measure(int rounds, int64_t batch) {
  torch::nn::Sequential net;
  for (int64_t i = 0; i < kLayers; ++i) {
    net->push_back(torch::nn::Linear(kWidth, kWidth));
    net->push_back(torch::nn::ReLU());
  }
  const torch::Tensor inputs = torch::randn({batch, kWidth});
  const auto step = [&] {
    net->zero_grad();
    net->forward(inputs).pow(2).mean().backward();
  };
  std::optional<inspect::GradWatch> watching;
  const std::map<std::string, std::function<void()>> variants = {
      {"plain", step}, {"watched", step}, {"read_of_gradients", [&] {
                                             double sum = 0;
                                             for (const auto& each : net->parameters())
                                               sum += each.grad().sum().item<double>();
                                             sink = sum;
                                           }}};
  std::map<std::string, std::vector<double>> seconds;
  for (int round = 0; round <= rounds; ++round) {
    for (const auto& [name, call] : variants) {
      if (name == "watched") watching.emplace(inspect::watch_grads(net));
      const auto start = std::chrono::steady_clock::now();
      call();
      const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      watching.reset();
      if (round > 0) seconds[name].push_back(took);
    }
  }
  const auto median = [&](const std::string& name) {
    std::vector<double>& values = seconds[name];
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  nlohmann::json result{{"benchmark", "watch_grads"}, {"batch", batch}, {"rounds", rounds}};
  for (const auto& [name, call] : variants) result[name + "_s"] = median(name);
  result["watched_by_plain"] = median("watched") / median("plain");
  result["reads_of_gradients"] = (median("watched") - median("plain")) / median("read_of_gradients");
  std::cout << result << std::endl;
}

}  // namespace

int main(int count, char** arguments) {
  at::set_num_threads(1);
  torch::manual_seed(1);
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 9;
  std::vector<int64_t> batches;
  for (int i = 2; i < count; ++i) batches.push_back(std::atoll(arguments[i]));
  if (batches.empty()) batches = {8, 64};
  for (const int64_t batch : batches) measure(rounds, batch);
}
