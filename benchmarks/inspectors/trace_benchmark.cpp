// What looking costs a training step of the transformer of benchmarks/ddp, on one rank with one thread: plain, with the
// sentinel on, traced for NaN, and recorded for lockstep. The variants take turns, step by step; each has its own replica.
// Prints one JSON line: medians in milliseconds, ratios to the plain step, and the part of its step that the sentinel was
// looking (which other programs on the machine disturb less than the ratio).
//
//   trace_benchmark [STEPS] [cheap]     cheap: the plain step and the sentinel alone
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/ddp/models.h"
#include "lockstep/inspect.h"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

struct Replica {
  Replica() {
    torch::manual_seed(0);
    module = std::make_shared<benchmark::TransformerImpl>();
    optimizer = std::make_unique<torch::optim::SGD>(module->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
  }
  void step(const torch::Tensor& x, const torch::Tensor& y) {
    module->zero_grad();
    torch::nn::functional::cross_entropy(module->forward(x), y).backward();
    optimizer->step();
  }
  std::shared_ptr<benchmark::TransformerImpl> module;
  std::unique_ptr<torch::optim::SGD> optimizer;
};

}  // namespace

int main(int count, char** arguments) {
  const int steps = count > 1 ? std::atoi(arguments[1]) : 20;
  at::set_num_threads(1);
  torch::manual_seed(1);
  const auto x = torch::randint(4096, {8, 128}, torch::kLong), y = torch::randint(4096, {8 * 128}, torch::kLong);
  Replica plain, watched, traced, recorded;
  const bool cheap = count > 2 && std::string(arguments[2]) == "cheap";
  int64_t operators = 0, bytes = 0;
  std::vector<double> looking;
  const auto quietly = inspect::NanOptions().publish(false);
  std::vector<std::pair<std::string, std::function<void()>>> variants = {
      {"plain", [&] { plain.step(x, y); }},
      {"sentinel",
       [&] {
         const auto watching = inspect::nan_watch(watched.module);
         const auto start = Clock::now();
         watched.step(x, y);
         looking.push_back(watching.status().seconds / std::chrono::duration<double>(Clock::now() - start).count());
       }},
      {"nan_trace",
       [&] {
         inspect::begin_nan_trace();
         traced.step(x, y);
         inspect::end_nan_trace({}, quietly);
       }},
      {"lockstep", [&] {
         const auto report =
             inspect::lockstep_ranks([&] { recorded.step(x, y); }, inspect::LockstepOptions().publish(false));
         operators = report.tensors;
         bytes = report.bytes;
       }}};
  if (cheap) variants.resize(2);
  std::map<std::string, std::vector<double>> milliseconds;
  for (int step = 0; step <= steps; ++step) {
    for (const auto& [name, call] : variants) {
      const auto start = Clock::now();
      call();
      if (step > 0)
        milliseconds[name].push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
  }
  nlohmann::json result{{"benchmark", "a step of the transformer, one rank, one thread"},
                        {"steps", steps},
                        {"operators", operators},
                        {"lockstep_bytes", bytes}};
  std::map<std::string, double> median;
  for (auto& [name, values] : milliseconds) {
    std::sort(values.begin(), values.end());
    median[name] = values[values.size() / 2];
    result[name + "_ms"] = median[name];
  }
  for (const auto& [name, value] : median)
    if (name != "plain") result[name + "_ratio"] = value / median["plain"];
  std::sort(looking.begin(), looking.end());
  result["sentinel_looking"] = looking[looking.size() / 2];
  for (const auto& other :
       cheap ? std::vector<Replica*>{&watched} : std::vector<Replica*>{&watched, &traced, &recorded})
    for (size_t i = 0; i < plain.module->parameters().size(); ++i)
      if (!torch::equal(plain.module->parameters()[i], other->module->parameters()[i])) {
        std::cerr << "looking changed the training\n";
        return 1;
      }
  std::cout << result << std::endl;
}
