// How fast fingerprints read memory, beside a plain sum of the same bytes in the same run. Prints a JSON line per case.
//
//   fingerprint_benchmark [ROUNDS]
//
// The plain sum adds 64-bit words in as many vectors as it takes to be bound by memory. Rounds take turns; the best
// round of each counts, as other programs use the memory too.
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "benchmarks/inspectors/plain_sum.h"
#include "inspectors/fingerprint/fingerprint.h"

using namespace lockstep;
using benchmark::plain_sum;

namespace {

uint64_t parallel_sum(const uint64_t* words, int64_t count) {
  return at::parallel_reduce(
      int64_t{0}, count, int64_t{1} << 17, uint64_t{0},
      [&](int64_t begin, int64_t end, uint64_t sum) { return sum + plain_sum(words + begin, end - begin); },
      std::plus<>());
}

double seconds(const std::function<void()>& what) {
  const auto start = std::chrono::steady_clock::now();
  what();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

volatile uint64_t sink;  // keeps results alive

void bandwidth(at::ScalarType dtype, int threads, int rounds) {
  at::set_num_threads(threads);
  // 64 Mi elements, or the 128 MiB that make a cache forget what it has read.
  const int64_t count = std::max<int64_t>(64 << 20, (128 << 20) / static_cast<int64_t>(c10::elementSize(dtype)));
  const at::Tensor tensor = c10::isIntegralType(dtype, /*includeBool=*/true)
                                ? torch::randint(100, {count}, dtype)
                                : torch::randn({count}).mul_(0.02).to(dtype);
  const auto* words = static_cast<const uint64_t*>(tensor.const_data_ptr());
  const auto bytes = static_cast<double>(tensor.nbytes());
  double best_sum = 1e9, best_fingerprint = 1e9;
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    const double sum = seconds([&] { sink = parallel_sum(words, tensor.nbytes() / 8); });
    const double mark = seconds([&] { sink = inspect::fingerprint(tensor).hash[0]; });
    best_sum = std::min(best_sum, sum);
    best_fingerprint = std::min(best_fingerprint, mark);
    ratios.push_back(sum / mark);
  }
  std::sort(ratios.begin(), ratios.end());
  std::cout << nlohmann::json{{"case", "bandwidth"},
                              {"dtype", c10::toString(dtype)},
                              {"threads", threads},
                              {"bytes", bytes},
                              {"plain_sum_gb_per_s", bytes / best_sum / 1e9},
                              {"fingerprint_gb_per_s", bytes / best_fingerprint / 1e9},
                              {"ratio_of_best", best_sum / best_fingerprint},
                              {"ratio_median", ratios[ratios.size() / 2]}}
            << std::endl;
}

void small_tensor(int rounds) {
  const at::Tensor tensor = torch::randn({1000});
  std::vector<double> took;
  for (int round = 0; round < rounds * 100; ++round)
    took.push_back(seconds([&] { sink = inspect::fingerprint(tensor).hash[0]; }) * 1e6);
  std::sort(took.begin(), took.end());
  std::cout << nlohmann::json{{"case", "1000 float32"}, {"median_us", took[took.size() / 2]}, {"best_us", took.front()}}
            << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  const int all = at::get_num_threads();
  small_tensor(rounds);
  for (const int threads : {1, all})
    for (const at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte})
      bandwidth(dtype, threads, rounds);
}
