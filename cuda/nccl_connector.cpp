// Connects ProcessGroupNCCL for one group and generation: communicators are made when the group connects, and aborted
// on a thread of their own. Each call that may block on a peer or on the device runs on such a thread, so that the
// rank's own thread and the thread that aborts stay free; a thread whose call does not return stays.
#include "cuda/nccl_connector.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "protocol/dist_error.h"

namespace lockstep::cuda {
namespace {

using c10d::ProcessGroupNCCL;
using std::chrono::milliseconds;

/// Returns "0000:1B:00.0", which is the same in every process, however it numbers its GPUs.
std::string bus_id(c10::DeviceIndex device) {
  std::array<char, 32> text = {};
  C10_CUDA_CHECK(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device));
  return text.data();
}

/// Runs `call` on a thread of its own with `device` current. Rethrows what it throws. Where `interrupted` is set, or
/// the limit passes, the thread goes on alone and keeps what it has captured.
class SeparateCall {
 public:
  void interrupt() {
    std::lock_guard lock(shared_->mutex);
    shared_->interrupted = true;
    shared_->changed.notify_all();
  }

  template <typename Result>
  Result run(const std::string& what, c10::DeviceIndex device, milliseconds limit, std::function<Result()> call) {
    struct State {
      bool done = false;
      std::exception_ptr error;
      std::optional<Result> result;
    };
    const auto state = std::make_shared<State>();
    const auto self = shared_;
    std::thread([self, state, device, call = std::move(call)]() mutable {
      std::optional<Result> result;
      std::exception_ptr error;
      try {
        const c10::cuda::CUDAGuard guard(device);
        result = call();
      } catch (...) {  // rethrown by who waits
        error = std::current_exception();
      }
      call = nullptr;
      std::lock_guard lock(self->mutex);
      state->done = true;
      state->error = error;
      state->result = std::move(result);
      self->changed.notify_all();
    }).detach();
    std::unique_lock lock(self->mutex);
    const bool in_time = self->changed.wait_for(lock, limit, [&] { return state->done || self->interrupted; });
    if (state->error) std::rethrow_exception(state->error);
    if (state->done) return std::move(*state->result);
    if (!in_time)
      throw dist::Error(what + " did not end within " + std::to_string(limit.count()) + " ms: a rank is missing");
    throw dist::Error(what + " was interrupted");
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool interrupted = false;
  };
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

class NcclConnector : public dist::BackendConnector {
 public:
  explicit NcclConnector(const dist::GroupDescription& group)
      : group_(group), device_(c10::cuda::current_device()), bus_id_(bus_id(device_)) {}

  /// GPUs of different hosts may have the same address. NCCL compares hosts by NCCL_HOSTID where it is set.
  std::string announcement() override {
    const char* host = std::getenv("NCCL_HOSTID");
    return host && *host ? bus_id_ + " of host " + host : bus_id_;
  }

  c10::intrusive_ptr<c10d::Backend> connect(const c10::intrusive_ptr<c10d::Store>& store,
                                            const std::vector<std::string>& peers,
                                            milliseconds connect_timeout) override;
  void interrupt() noexcept override;
  void close() override;

  bool lost_connection() const noexcept override;

 private:
  using Backend = c10::intrusive_ptr<ProcessGroupNCCL>;

  c10::intrusive_ptr<ProcessGroupNCCL::Options> options() const;
  Backend backend() const {
    std::lock_guard lock(mutex_);
    return backend_;
  }

  const dist::GroupDescription group_;
  const c10::DeviceIndex device_;
  const std::string bus_id_;
  SeparateCall calls_;
  mutable std::mutex mutex_;
  Backend backend_;
  bool interrupted_ = false;
};

c10::intrusive_ptr<ProcessGroupNCCL::Options> NcclConnector::options() const {
  auto options = ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/false);
  options->timeout = group_.timeout;
  options->group_name = group_.name;
  options->group_desc = group_.name;
  for (const int rank : group_.ranks) options->global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
  // With non-blocking communicators a thread that waits in a call while another one aborts would ask a communicator
  // that is gone for its state, and spin until LibTorch's limit. Calls that may block run on threads of their own
  // instead.
  if (const char* chosen = std::getenv("TORCH_NCCL_USE_COMM_NONBLOCKING"); !chosen || !*chosen)
    options->config.blocking = 1;
  return options;
}

c10::intrusive_ptr<c10d::Backend> NcclConnector::connect(const c10::intrusive_ptr<c10d::Store>& store,
                                                         const std::vector<std::string>& peers,
                                                         milliseconds connect_timeout) {
  for (size_t a = 0; a < peers.size(); ++a)
    for (size_t b = a + 1; b < peers.size(); ++b)
      if (peers[a] == peers[b])
        throw dist::Error("ranks " + std::to_string(group_.ranks.at(a)) + " and " + std::to_string(group_.ranks.at(b)) +
                          " are on one GPU (" + peers[a] +
                          "), and NCCL needs one for each rank. Give each a GPU of its own, use the backend gloo "
                          "(lockstep --share-gpu), or let NCCL take each rank for a host (lockstep --share-gpu "
                          "--backend nccl; elsewhere, another NCCL_HOSTID for each rank)");
  // Each group has a communicator of its own, although the default group's could be split: ProcessGroupNCCL holds the
  // parent's mutex while it splits, and the parent's abort needs that mutex.
  const auto options = this->options();
  const int rank = group_.group_rank, size = static_cast<int>(group_.ranks.size());
  const c10::Device device(c10::DeviceType::CUDA, device_);
  const auto made =
      calls_.run<Backend>("making the communicator of group " + group_.name, device_, connect_timeout, [=] {
        auto backend = c10::make_intrusive<ProcessGroupNCCL>(store, rank, size, options);
        backend->setBoundDeviceId(device);
        backend->eagerConnectSingleDevice(device);
        return backend;
      });
  std::lock_guard lock(mutex_);
  if (interrupted_) throw dist::Error("the communicator of group " + group_.name + " was interrupted");
  backend_ = made;
  return made;
}

void NcclConnector::interrupt() noexcept {
  Backend backend;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(interrupted_, true)) return;
    backend = backend_;
  }
  calls_.interrupt();
  if (!backend) return;
  // ncclCommAbort waits for kernels that were queued before it, and may free memory, which waits for the device.
  std::thread([backend = std::move(backend)]() mutable {
    try {
      backend->abort();
    } catch (const std::exception&) {
      // The group is aborted in any case; the communicator is not used again.
    }
    backend.reset();
  }).detach();
}

void NcclConnector::close() {
  const Backend backend = this->backend();
  // Flushes what is queued and waits for the ranks that are not done. Without it the destructor aborts.
  if (backend) backend->shutdown();
}

bool NcclConnector::lost_connection() const noexcept {
  std::lock_guard lock(mutex_);
  return interrupted_ || (backend_ && backend_->getError() == c10d::ErrorType::REMOTE_ERROR);
}

}  // namespace

std::unique_ptr<dist::BackendConnector> make_nccl_connector(const dist::GroupDescription& group) {
  return std::make_unique<NcclConnector>(group);
}

}  // namespace lockstep::cuda
