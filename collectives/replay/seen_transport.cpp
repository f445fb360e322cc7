#include "collectives/replay/seen_transport.h"

#include <ATen/ATen.h>

#include <chrono>

namespace lockstep::dist {

using WorkPtr = SeenTransport::WorkPtr;

std::vector<at::Tensor> dense_parts(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& each : tensors) {
    if (!each.is_sparse()) {
      parts.push_back(each);
      continue;
    }
    parts.push_back(each._indices());
    parts.push_back(each._values());
  }
  return parts;
}

namespace {
SeenTransport::Tensors list_or_none(const SeenTransport::TensorLists& lists) {
  return lists.empty() ? SeenTransport::Tensors() : lists[0];
}

/// The work of a call that has waited already.
class EndedWork : public c10d::Work {
 public:
  EndedWork() : c10d::Work(-1, c10d::OpType::BARRIER) { finish(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
    future->markCompleted();
    return future;
  }
};
}  // namespace

WorkPtr SeenTransport::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const bool sends = options.rootRank == getRank();
  return take({.name = "broadcast", .sent = sends ? tensors : Tensors(), .received = sends ? Tensors() : tensors},
              [=](c10d::Backend& inner) mutable { return inner.broadcast(tensors, options); });
}

WorkPtr SeenTransport::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return take({.name = "allreduce", .sent = tensors, .received = tensors},
              [=](c10d::Backend& inner) mutable { return inner.allreduce(tensors, options); });
}

WorkPtr SeenTransport::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const bool receives = options.rootRank == getRank();
  return take({.name = "reduce", .sent = tensors, .received = receives ? tensors : Tensors()},
              [=](c10d::Backend& inner) mutable { return inner.reduce(tensors, options); });
}

WorkPtr SeenTransport::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return take({.name = "allgather", .sent = inputs, .received = list_or_none(outputs)},
              [=](c10d::Backend& inner) mutable { return inner.allgather(outputs, inputs, options); });
}

WorkPtr SeenTransport::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return take({.name = "_allgather_base", .sent = {input}, .received = {output}},
              [=](c10d::Backend& inner) mutable { return inner._allgather_base(output, input, options); });
}

WorkPtr SeenTransport::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return take({.name = "gather", .sent = inputs, .received = list_or_none(outputs)},
              [=](c10d::Backend& inner) mutable { return inner.gather(outputs, inputs, options); });
}

WorkPtr SeenTransport::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  return take({.name = "scatter", .sent = list_or_none(inputs), .received = outputs},
              [=](c10d::Backend& inner) mutable { return inner.scatter(outputs, inputs, options); });
}

WorkPtr SeenTransport::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                      const c10d::ReduceScatterOptions& options) {
  return take({.name = "reduce_scatter", .sent = list_or_none(inputs), .received = outputs},
              [=](c10d::Backend& inner) mutable { return inner.reduce_scatter(outputs, inputs, options); });
}

WorkPtr SeenTransport::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                            const c10d::ReduceScatterOptions& options) {
  return take({.name = "_reduce_scatter_base", .sent = {input}, .received = {output}},
              [=](c10d::Backend& inner) mutable { return inner._reduce_scatter_base(output, input, options); });
}

WorkPtr SeenTransport::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                     std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  return take({.name = "alltoall_base", .sent = {input}, .received = {output}}, [=](c10d::Backend& inner) mutable {
    return inner.alltoall_base(output, input, output_splits, input_splits, options);
  });
}

WorkPtr SeenTransport::send(Tensors& tensors, int destination, int tag) {
  return take({.name = "send", .sent = tensors, .received = {}, .is_message = true},
              [=](c10d::Backend& inner) mutable { return inner.send(tensors, destination, tag); });
}

WorkPtr SeenTransport::recv(Tensors& tensors, int source, int tag) {
  return take({.name = "recv", .sent = {}, .received = tensors, .is_message = true},
              [=](c10d::Backend& inner) mutable { return inner.recv(tensors, source, tag); });
}

WorkPtr SeenTransport::recvAnysource(Tensors& tensors, int tag) {
  return take({.name = "recvAnysource", .sent = {}, .received = tensors, .is_message = true},
              [=](c10d::Backend& inner) mutable { return inner.recvAnysource(tensors, tag); });
}

WorkPtr SeenTransport::barrier(const c10d::BarrierOptions& options) {
  return take({.name = "barrier"}, [=](c10d::Backend& inner) { return inner.barrier(options); });
}

void SeenTransport::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  take({.name = "monitoredBarrier"}, [=](c10d::Backend& inner) -> WorkPtr {
    inner.monitoredBarrier(options, wait_all_ranks);
    return c10::make_intrusive<EndedWork>();
  })->wait();
}

}  // namespace lockstep::dist
