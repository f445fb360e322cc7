#include "tests/cuda/cpu_grid.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "tests/cuda/grid_order.h"

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
      : launch_(launch),
        index_(index),
        shared_(new typename Kernel::Shared),
        warps_(warp_order(Kernel::kThreads, index, order, seed)) {
    std::memset(static_cast<void*>(shared_.get()), 0xa5, sizeof(typename Kernel::Shared));
  }

  /// The next phase of all threads; false: the block has ended.
  bool step() {
    run_phase(std::make_integer_sequence<uint32_t, Kernel::kPhases>());
    const bool goes_on = Kernel::goes_on(phase_, *shared_);
    return ++phase_ < Kernel::kPhases && goes_on;
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
  run_blocks(blocks, order, seed, /*resident=*/16,
             [&](uint32_t index) { return std::make_unique<Block<Kernel>>(launch, index, order, seed); });
}

}  // namespace

void run_grid(const FingerprintLaunch& launch, uint32_t blocks, GridOrder order, uint32_t seed) {
  run<FingerprintKernel>(launch, blocks, order, seed);
}
void run_grid(const SentinelLaunch& launch, uint32_t blocks, GridOrder order, uint32_t seed) {
  run<SentinelKernel>(launch, blocks, order, seed);
}

}  // namespace lockstep::cuda
