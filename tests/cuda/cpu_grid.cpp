#include "tests/cuda/cpu_grid.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::cuda {
namespace {

struct FingerprintKernel {
  using Launch = FingerprintLaunch;
  using Shared = FingerprintShared;
  using Context = FingerprintContext;
  static constexpr uint32_t kThreads = kFingerprintThreads, kPhases = kFingerprintPhases;
  template <uint32_t phase>
  static void run(Context& context) {
    fingerprint_phase<phase>(context);
  }
  static bool goes_on(uint32_t phase, const Shared& shared) { return fingerprint_goes_on(phase, shared); }
};

struct SentinelKernel {
  using Launch = SentinelLaunch;
  using Shared = SentinelShared;
  using Context = SentinelContext;
  static constexpr uint32_t kThreads = kSentinelThreads, kPhases = ::lockstep::cuda::kSentinelPhases;
  template <uint32_t phase>
  static void run(Context& context) {
    sentinel_phase<phase>(context);
  }
  static bool goes_on(uint32_t, const Shared&) { return true; }
};

template <typename Kernel>
class Block {
 public:
  Block(const typename Kernel::Launch& launch, uint32_t index, GridOrder order, uint32_t seed)
      : launch_(launch), index_(index), shared_(new typename Kernel::Shared), warps_(Kernel::kThreads / 32) {
    std::memset(static_cast<void*>(shared_.get()), 0xa5, sizeof(typename Kernel::Shared));
    std::iota(warps_.begin(), warps_.end(), 0U);
    if (order == GridOrder::backward)
      std::reverse(warps_.begin(), warps_.end());
    else if (order != GridOrder::forward)
      std::shuffle(warps_.begin(), warps_.end(), std::mt19937(seed + index));
  }

  /// The next phase of all threads; false: the block has ended.
  bool step() {
    run_phase(std::make_integer_sequence<uint32_t, Kernel::kPhases>());
    const bool goes_on = Kernel::goes_on(phase_, *shared_);
    return ++phase_ < Kernel::kPhases && goes_on;
  }
  void run() {
    while (step()) {
    }
  }

 private:
  template <uint32_t... phases>
  void run_phase(std::integer_sequence<uint32_t, phases...>) {
    for (const uint32_t warp : warps_)
      for (uint32_t lane = 0; lane < 32; ++lane) {
        typename Kernel::Context context{launch_, *shared_, index_, warp * 32 + lane};
        ((phase_ == phases ? Kernel::template run<phases>(context) : void()), ...);
      }
  }

  const typename Kernel::Launch& launch_;
  uint32_t index_, phase_ = 0;
  std::unique_ptr<typename Kernel::Shared> shared_;
  std::vector<uint32_t> warps_;
};

template <typename Kernel>
void run(const typename Kernel::Launch& launch, uint32_t blocks, GridOrder order, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> indices(blocks);
  std::iota(indices.begin(), indices.end(), 0U);
  if (order == GridOrder::backward)
    std::reverse(indices.begin(), indices.end());
  else if (order != GridOrder::forward)
    std::shuffle(indices.begin(), indices.end(), random);

  if (order == GridOrder::interleaved) {
    std::vector<std::unique_ptr<Block<Kernel>>> resident;
    size_t next = 0;
    while (next < indices.size() || !resident.empty()) {
      while (next < indices.size() && resident.size() < 16)
        resident.push_back(std::make_unique<Block<Kernel>>(launch, indices[next++], order, seed));
      const size_t chosen = random() % resident.size();
      if (!resident[chosen]->step()) resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
  } else if (order == GridOrder::parallel) {
    std::atomic<size_t> next = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (size_t mine = next++; mine < indices.size(); mine = next++)
          Block<Kernel>(launch, indices[mine], order, seed).run();
      });
    for (std::thread& thread : threads) thread.join();
  } else {
    for (const uint32_t index : indices) Block<Kernel>(launch, index, order, seed).run();
  }
}

}  // namespace

void run_grid(const FingerprintLaunch& launch, uint32_t blocks, GridOrder order, uint32_t seed) {
  run<FingerprintKernel>(launch, blocks, order, seed);
}
void run_grid(const SentinelLaunch& launch, uint32_t blocks, GridOrder order, uint32_t seed) {
  run<SentinelKernel>(launch, blocks, order, seed);
}

}  // namespace lockstep::cuda
