// run_grid of cpu_grid.h with what nvcc has made of the kernels, in place of their bodies: its PTX, written as C++ by
// ptx_to_cpp.py. The tests of the bodies then are tests of the compiler's code, on any machine.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/cuda/cpu_grid.h"
#include "tests/cuda/grid_order.h"
#include "tests/cuda/ptx/machine.h"

namespace lockstep::cuda {
namespace {

/// Memory of a device's alignment, full of garbage.
class Memory {
 public:
  explicit Memory(size_t bytes) : data_(new(std::align_val_t{64}) uint8_t[bytes]) { std::memset(data_, 0xa5, bytes); }
  ~Memory() { ::operator delete[](data_, std::align_val_t{64}); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint8_t* at(size_t offset) { return data_ + offset; }

 private:
  uint8_t* data_;
};

size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

/// The registers of a block, 45 MB. Those of ended blocks are used again as they are: a thread reads none that it has
/// not written.
class RegisterFiles {
 public:
  std::unique_ptr<Memory> take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (files_.empty()) return std::make_unique<Memory>(bytes);
    auto file = std::move(files_.back());
    files_.pop_back();
    return file;
  }
  void give_back(std::unique_ptr<Memory> file) {
    const std::lock_guard lock(mutex_);
    files_.push_back(std::move(file));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Memory>> files_;
};

class Block {
 public:
  template <typename Launch>
  Block(const ptx::Kernel& kernel, RegisterFiles& files, const Launch& launch, uint32_t index, GridOrder order,
        uint32_t seed)
      : kernel_(kernel),
        files_(files),
        index_(index),
        warps_(warp_order(kThreads, index, order, seed)),
        registers_(files.take(rounded(kernel.register_bytes) * kThreads)),
        shared_(rounded(kernel.shared_bytes)),
        local_(rounded(kernel.local_bytes) * kThreads),
        param_(sizeof launch) {
    std::memcpy(param_.at(0), &launch, sizeof launch);
  }
  ~Block() { files_.give_back(std::move(registers_)); }

  bool step() {
    int barrier = 0;
    bool first = true;
    for (const uint32_t warp : warps_)
      for (uint32_t lane = 0; lane < 32; ++lane) {
        const uint32_t id = warp * 32 + lane;
        ptx::Thread thread{.tid = id,
                           .ctaid = index_,
                           .shared = shared_.at(0),
                           .local = local_.at(rounded(kernel_.local_bytes) * id),
                           .param = param_.at(0),
                           .registers = registers_->at(rounded(kernel_.register_bytes) * id)};
        const int reached = kernel_.run(thread, resume_);
        if (!std::exchange(first, false) && reached != barrier) {
          std::fprintf(stderr, "threads of block %u meet at different barriers: %d and %d\n", index_, barrier, reached);
          std::abort();
        }
        barrier = reached;
      }
    resume_ = barrier;
    return resume_ >= 0;
  }

 private:
  static constexpr uint32_t kThreads = kFingerprintThreads;
  static_assert(kFingerprintThreads == kSentinelThreads);

  const ptx::Kernel& kernel_;
  RegisterFiles& files_;
  const uint32_t index_;
  const std::vector<uint32_t> warps_;
  std::unique_ptr<Memory> registers_;
  Memory shared_, local_, param_;
  int resume_ = 0;
};

template <typename Launch>
void run(const ptx::Kernel& kernel, const Launch& launch, uint32_t blocks, GridOrder order, uint32_t seed) {
  RegisterFiles files;
  run_blocks(blocks, order, seed, /*resident=*/4,
             [&](uint32_t index) { return std::make_unique<Block>(kernel, files, launch, index, order, seed); });
}

}  // namespace

void run_grid(const FingerprintLaunch& launch, uint32_t blocks, GridOrder order, uint32_t seed) {
  run(ptx::fingerprint_kernel, launch, blocks, order, seed);
}
void run_grid(const SentinelLaunch& launch, uint32_t blocks, GridOrder order, uint32_t seed) {
  run(ptx::sentinel_kernel, launch, blocks, order, seed);
}

}  // namespace lockstep::cuda
