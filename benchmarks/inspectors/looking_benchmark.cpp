// What looking costs, as ratios within one run: data against sorting the indices, ranks against a bare meeting, SavedState
// against copying the tensors, and a training step while memory is watched or operators are recorded against one without.
//
//   looking_benchmark [ROUNDS]         // two ranks, processes
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "benchmarks/inspectors/ranks_in_turns.h"
#include "lockstep/inspect.h"

namespace {

using namespace lockstep;

torch::nn::Sequential make_net() {
  torch::nn::Sequential net;
  for (int i = 0; i < 4; ++i) {
    net->push_back(torch::nn::Linear(512, 512));
    net->push_back(torch::nn::ReLU());
  }
  return net;
}

void measure(int rank, int rounds) {
  constexpr int64_t kSamples = 640'000;  // of each rank
  std::vector<int64_t> samples(kSamples);
  std::iota(samples.begin(), samples.end(), rank * kSamples);
  std::shuffle(samples.begin(), samples.end(), std::mt19937_64(1));
  torch::nn::Sequential net = make_net();
  torch::optim::Adam optimizer(net->parameters());
  const torch::Tensor input = torch::randn({64, 512});
  const auto step = [&] {
    optimizer.zero_grad();
    net->forward(input).pow(2).mean().backward();
    optimizer.step();
  };
  step();
  const auto quiet_data = inspect::DataOptions().size(2 * kSamples).publish(false);
  const benchmark::Calls calls = {
      {"sort",
       [&] {
         std::vector<int64_t> both = samples;
         both.insert(both.end(), samples.begin(), samples.end());
         std::sort(both.begin(), both.end());
       }},
      {"data", [&] { inspect::data(samples, quiet_data); }},
      {"verify_of_a_number", [&] { inspect::verify(3, inspect::VerifyOptions().publish(false)); }},
      {"ranks", [&] { inspect::ranks(inspect::RanksOptions().publish(false)); }},
      {"copy_of_the_tensors",
       [&] {
         for (int moment = 0; moment < 4; ++moment)  // parameters, gradients, Adam's two
           for (const auto& each : net->parameters()) each.detach().clone();
       }},
      {"saved_state", [&] { const inspect::SavedState state(net, optimizer); }},
      {"step", step},
      {"step_with_memory_watched",
       [&] {
         const auto watching = inspect::watch_memory();
         step();
       }},
      {"step_with_operators_recorded", [&] {
         const auto recording = inspect::record_operators();
         step();
       }}};
  const auto seconds = benchmark::in_turns(rounds, calls);
  if (rank != 0) return;
  nlohmann::json result =
      benchmark::with_seconds({{"benchmark", "what looking costs, 2 ranks"}, {"rounds", rounds}}, seconds);
  const auto median = [&](const char* name) { return seconds.at(name).median; };
  result["data_per_sort"] = median("data") / median("sort");
  result["ranks_per_verify_of_a_number"] = median("ranks") / median("verify_of_a_number");
  result["saved_state_per_copy"] = median("saved_state") / median("copy_of_the_tensors");
  result["memory_watched_per_step"] = median("step_with_memory_watched") / median("step");
  result["operators_recorded_per_step"] = median("step_with_operators_recorded") / median("step");
  std::cout << result.dump(1) << std::endl;
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 9;
  return benchmark::run_as_ranks(2, arguments, [&](int rank) { measure(rank, rounds); });
}
