// The orders of cpu_grid.h, for blocks of any kind: what a block is, ends with the caller.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "tests/cuda/cpu_grid.h"

namespace lockstep::cuda {

/// The warps of a block of `threads`, in the order in which they run.
inline std::vector<uint32_t> warp_order(uint32_t threads, uint32_t block, GridOrder order, uint32_t seed) {
  std::vector<uint32_t> warps(threads / 32);
  std::iota(warps.begin(), warps.end(), 0U);
  if (order == GridOrder::backward)
    std::reverse(warps.begin(), warps.end());
  else if (order != GridOrder::forward)
    std::shuffle(warps.begin(), warps.end(), std::mt19937(seed + block));
  return warps;
}

/// `make(index)` gives a block, whose step() runs all of its threads to the next barrier, and says whether there is
/// one. At most `resident` of them are there at a time.
template <typename Make>
void run_blocks(uint32_t blocks, GridOrder order, uint32_t seed, size_t resident, const Make& make) {
  std::mt19937 random(seed);
  std::vector<uint32_t> indices(blocks);
  std::iota(indices.begin(), indices.end(), 0U);
  if (order == GridOrder::backward)
    std::reverse(indices.begin(), indices.end());
  else if (order != GridOrder::forward)
    std::shuffle(indices.begin(), indices.end(), random);
  const auto run = [&](uint32_t index) {
    const auto block = make(index);
    while (block->step()) {
    }
  };

  if (order == GridOrder::interleaved) {
    std::vector<decltype(make(0))> there;
    size_t next = 0;
    while (next < indices.size() || !there.empty()) {
      while (next < indices.size() && there.size() < resident) there.push_back(make(indices[next++]));
      const size_t chosen = random() % there.size();
      if (!there[chosen]->step()) there.erase(there.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
  } else if (order == GridOrder::parallel) {
    std::atomic<size_t> next = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (size_t mine = next++; mine < indices.size(); mine = next++) run(indices[mine]);
      });
    for (std::thread& thread : threads) thread.join();
  } else {
    for (const uint32_t index : indices) run(index);
  }
}

}  // namespace lockstep::cuda
