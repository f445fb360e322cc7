// A transport through which every call of a group on Gloo or on shared memory goes as one function: what is sent, what is
// received, and how to issue it. The watched backend has brought coalesced forms, parts of tensors and dtypes that Gloo
// does not know into the few operations that are here, so that a recorder or a player knows no more of them.
#pragma once
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace lockstep::dist {

struct TransportCall {
  const char* name = "";  // "allreduce", as c10d has it
  std::vector<at::Tensor> sent, received;
  bool is_message = false;  // point to point: done for this rank when somebody has waited for it
};

class SeenTransport : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;

  const std::string getBackendName() const override { return "gloo"; }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

 protected:
  using Issue = std::function<WorkPtr(c10d::Backend& inner)>;
  SeenTransport(int rank, int size) : c10d::Backend(rank, size) { init(); }

  /// Returns the work of a call. `issue` may be called later than this, and not at all.
  virtual WorkPtr take(TransportCall call, const Issue& issue) = 0;
};

/// Returns the dense tensors that hold all of `tensors`: of sparse ones indices and values.
std::vector<at::Tensor> dense_parts(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::dist
