// The backend that every process group of Lockstep has: it logs each collective, compares it with what the other ranks
// called, and passes it to the transport (Gloo, shared memory, NCCL). dist::, c10d::Reducer and anything else on the
// ProcessGroup go through it, and it stays the same object when the transport is replaced by regroup.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "collectives/backend/backend.h"
#include "collectives/transport/libtorch_version.h"
#include "collectives/watch/watched_group.h"

namespace lockstep::dist {

enum class Use;

/// The operations since startCoalescing. The transport gets those of its device at the end, one after the other in a
/// group of its own: a call that throws before leaves no group open, in which all later operations would wait.
struct OperationBatch {
  struct Operation {
    std::optional<c10::Stream> stream;  // that was the caller's current one
    std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend& transport)> issue;
  };
  std::vector<Operation> operations;
  std::vector<Entered> entered;  // in the log: of each operation
  std::vector<std::function<void()>> finish;
  std::vector<at::Tensor> results;
  bool collectives = false;  // not messages alone
  std::vector<c10::intrusive_ptr<c10d::Work>> on_host;  // operations on CPU tensors, which have begun
};

class WatchedBackend : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  explicit WatchedBackend(std::shared_ptr<WatchedGroup> group);

  const std::shared_ptr<WatchedGroup>& group() const { return group_; }

  /// Replaces the transport; null: none until the next call. Collectives in flight keep the old one's work.
  void set_transport(c10::intrusive_ptr<c10d::Backend> transport);

  /// Returns the device's where the group has several. Throws where there is none.
  c10::intrusive_ptr<c10d::Backend> transport() const;

  /// Enters dist::new_group into the log as a collective: it is compared with what the peers call, and nothing is sent.
  Entered enter_new_group(const std::vector<int64_t>& ranks, uint64_t call_site);

  /// Runs several operations of the transport that are one collective to the caller, the log and the other ranks. The
  /// transport takes CPU tensors: it is Gloo's in a group with a transport for a device. `steps` runs on the calling
  /// thread and waits for each; what it throws counts as the transport's error. This rank sends `bytes`.
  using Steps = std::function<void(c10d::Backend& transport)>;
  void run_steps(CollectiveOp op, int group_root, int64_t bytes, const Steps& steps);
  /// Does the same between two ranks; `peer` -1 is any.
  void run_steps_with(CollectiveOp op, int peer, int64_t bytes, const Steps& steps);

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  WorkPtr endCoalescing() override;

  int64_t generation() const { return group_->generation(); }

  // The transport answers these questions and takes these settings.
  const std::string getBackendName() const override { return group_->identity().backend.str(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return transport()->getBackendOptions(); }
  bool supportsCoalescing() const override { return transport()->supportsCoalescing(); }
  bool supportsTimeEstimation() const override { return transport()->supportsTimeEstimation(); }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void startCoalescing() override;
  void setSequenceNumberForGroup() override {}  // numbers start equal on all ranks and go on equally after regroup
  uint64_t getSequenceNumberForGroup() override { return static_cast<uint64_t>(group_->seq()); }
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override {
    transport()->registerOnCompletionHook(std::move(hook));
  }
  void waitForPendingWorks() override { transport()->waitForPendingWorks(); }
  void enableCollectivesTiming() override { transport()->enableCollectivesTiming(); }
  void setGroupUid(const std::string& uid) override;
  void eagerConnectSingleDevice(at::Device device) override { transport()->eagerConnectSingleDevice(device); }
  c10d::ErrorType getError() override { return transport()->getError(); }
  std::shared_ptr<c10::Allocator> getMemAllocator() override { return transport()->getMemAllocator(); }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return transport()->allocateTensor(size, options);
  }
  bool supportsTensorAlloc(c10::DeviceIndex device) override { return transport()->supportsTensorAlloc(device); }
  void abort() override;
  void shutdown() override;

  // A group made by the transport itself would not be watched, nor freed by abort. These throw, and name
  // dist::new_group instead.
  bool supportsSplitting() const override { return false; }
  bool supportsShrinking() const override { return false; }
  c10::intrusive_ptr<Backend> shrink(const std::vector<int64_t>& ranks_to_exclude, int flags,
                                     const c10::intrusive_ptr<Options>& options) override;
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;
  c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                    const c10::intrusive_ptr<Options>& options, const int& rank,
                                    const int& size) override;

#if LOCKSTEP_C10D_HAS_SUSPEND
  void suspend() override { transport()->suspend(); }
  void resume() override { transport()->resume(); }
  std::unordered_map<std::string, uint64_t> getMemoryStats() override { return transport()->getMemoryStats(); }
#endif
#if LOCKSTEP_C10D_HAS_WINDOW
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override;
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout) override {
    transport()->addEphemeralTimeout(timeout);
  }
  bool supportsWindow() const override { return transport()->supportsWindow(); }
  c10::intrusive_ptr<c10d::Window> new_window(const std::optional<at::Tensor>& tensor) override {
    return transport()->new_window(tensor);
  }
  void registerAbortHook(int64_t id, c10d::AbortHook hook) override {
    transport()->registerAbortHook(id, std::move(hook));
  }
  void unregisterAbortHook(int64_t id) override { transport()->unregisterAbortHook(id); }
#endif
#if LOCKSTEP_C10D_HAS_COMPLETION_HOOKS
  bool isInitialized() override { return transport()->isInitialized(); }
  void startTimeEstimate() override { transport()->startTimeEstimate(); }
  float endTimeEstimate() override { return transport()->endTimeEstimate(); }
  bool supportsAbortHooks() const override { return transport()->supportsAbortHooks(); }
  bool supportsCompletionHooks() const override { return transport()->supportsCompletionHooks(); }
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override {
    transport()->registerCompletionHook(id, std::move(hook));
  }
  void unregisterCompletionHook(int64_t id) override { transport()->unregisterCompletionHook(id); }
#endif

 private:
  struct Call;  // what is logged and compared, and the tensors of the transport

  /// Returns the transport of CPU tensors, which a group for a device has beside its own.
  c10d::Backend& host_transport() const;
  const BackendConfig& config() const { return group_->identity().backend; }
  template <typename Issue>
  WorkPtr run(Call& call, c10d::OpType type, bool async, Issue&& issue);
  template <typename Issue>
  WorkPtr issue_entered(Call& call, const Entered& entered, c10d::OpType type, bool reports,
                        std::unique_lock<std::mutex>& lock, Issue&& issue);
  template <typename Issue>
  WorkPtr run_point_to_point(Call& call, c10d::OpType type, int peer, int tag, Issue&& issue);
  WorkPtr all_gather_parts(Call& call, const Tensors& inputs, const TensorLists& outputs, bool async);
  WorkPtr reduce_scatter_parts(Call& call, c10d::OpType type, const Tensors& outputs, const Tensors& inputs,
                               const c10d::ReduceScatterOptions& options);
  void run_entered(const Entered& entered, c10d::Backend& transport, const Steps& steps);
  void check_message(const char* function, const Tensors& tensors, int peer, int tag, Use use) const;
  int global_root(int64_t group_root, const char* what) const;

  const std::shared_ptr<WatchedGroup> group_;
  mutable std::mutex order_;  // numbers are given out in the order in which the transport gets the calls
  c10::intrusive_ptr<c10d::Backend> transport_;

  struct BatchGuard;
  void drop_batch();
  std::optional<OperationBatch> batch_;  // under order_
};

}  // namespace lockstep::dist
