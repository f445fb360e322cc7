// One call of the watched backend: what is logged and compared, the tensors that the transport gets, and what remains
// to do when the transport is done. Only the sources of the backend include it.
#pragma once
#include <ATen/ATen.h>

#include <utility>

#include "collectives/transport/mixed_connector.h"
#include "collectives/transport/streams.h"
#include "collectives/transport/transport_tensors.h"
#include "collectives/watch/arguments.h"
#include "collectives/watch/call_context.h"
#include "collectives/watch/caller.h"
#include "collectives/watch/calls_transport.h"
#include "collectives/watch/collective_listener.h"
#include "collectives/watch/stream_mark.h"
#include "collectives/watch/watched_backend.h"
#include "collectives/watch/watched_work.h"

namespace lockstep::dist {

inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

struct WatchedBackend::Call {
  /// `described` has the caller's tensors that are compared between ranks. Without tensors the call belongs to the
  /// device that the group has a backend for, and else to the CPU.
  Call(const BackendConfig& backend, CollectiveOp op, c10::ArrayRef<at::Tensor> described, int root = -1,
       std::optional<c10d::ReduceOp::RedOpType> reduce_op = {})
      : part(part_of(backend, described)), tensors(wire_of(part)) {
    const CallContext* context = CallContext::current();
    if (!described.empty()) device = stream_device(described[0]);
    if (device) fields.flags |= log_layout::kOnDevice;
    fields.op = op;
    fields.root = root;
    fields.tensor_count = static_cast<int>(described.size());
    if (reduce_op) fields.reduce_op = static_cast<uint8_t>(*reduce_op);
    const Caller caller = context ? Caller{.site = context->site(), .is_c10d = false} : find_caller();
    fields.call_site = caller.site;
    if (caller.is_c10d) fields.flags |= log_layout::kThroughC10d;
    if (caller.named) fields.flags |= log_layout::kNamedSite;
    uint64_t hash = mix(static_cast<uint64_t>(op) << 16 | fields.reduce_op, static_cast<uint64_t>(root) + 2);
    bool first = true;
    for (const at::Tensor& tensor : described) {
      const at::IntArrayRef sizes = tensor.sizes();
      if (first) {
        fields.dtype = static_cast<uint8_t>(tensor.scalar_type());
        fields.shape = sizes.data();
        fields.dimensions = sizes.size();
      }
      hash = mix(hash, static_cast<uint64_t>(tensor.scalar_type()) << 32 | sizes.size());
      for (const int64_t size : sizes) hash = mix(hash, static_cast<uint64_t>(size));
      if (tensor.is_sparse())
        hash = mix(hash, static_cast<uint64_t>(tensor.sparse_dim()));
      else
        fields.bytes += tensor.numel() * static_cast<int64_t>(tensor.element_size());
      first = false;
    }
    // Tensors of one rank must not go another way than those of the others. Gloo has one way for all devices.
    if (!works_as_gloo()) hash = mix(hash, static_cast<uint64_t>(part.device) + 1);
    fields.signature = mix(hash, described.size());
  }

  static const BackendConfig::Part& part_of(const BackendConfig& backend, c10::ArrayRef<at::Tensor> described) {
    const BackendConfig::Part* part =
        described.empty() ? backend.device_part() : backend.part_for(described[0].device().type());
    if (described.empty() && part && part->works_as_gloo()) part = nullptr;  // what has no tensors has no device
    return part ? *part : backend.parts().front();
  }
  static Wire wire_of(const BackendConfig::Part& part) { return part.works_as_gloo() ? Wire::gloo : Wire::nccl; }
  bool works_as_gloo() const { return part.works_as_gloo(); }
  bool on_shared_memory() const { return part.shares_memory(); }
  /// The transport queues the operation on a device, and the host goes on. Gloo's work on host memory is the host's.
  bool on_device() const { return part.device != c10::DeviceType::CPU && !works_as_gloo(); }

  /// Shapes may differ between ranks in these operations: only operation and dtype are compared, and the splits pair by
  /// pair.
  void compare_splits(const std::vector<int64_t>& inputs, const std::vector<int64_t>& outputs) {
    splits = inputs;
    splits.insert(splits.end(), outputs.begin(), outputs.end());
    fields.words = &splits;
    fields.signature = mix(static_cast<uint64_t>(fields.op), fields.dtype);
  }

  /// Adapts the call to Gloo, which has no AVG and reduces bools as bytes: AVG is SUM and a division of `reduced` by
  /// the group's size at the end (integers: towards zero), SUM of bools is MAX, and PRODUCT of bools MIN. Changes `op`.
  void adapt(c10d::ReduceOp& op, const Tensors& reduced, int size) {
    if (op.op_ == c10d::ReduceOp::AVG) {
      op = c10d::ReduceOp(c10d::ReduceOp::SUM);
      averaged = reduced;
      divisor = size;
    } else if (!reduced.empty() && reduced[0].scalar_type() == at::kBool) {
      if (op.op_ == c10d::ReduceOp::SUM) op = c10d::ReduceOp(c10d::ReduceOp::MAX);
      if (op.op_ == c10d::ReduceOp::PRODUCT) op = c10d::ReduceOp(c10d::ReduceOp::MIN);
    }
  }

  /// Returns the options that the transport gets. Those on a device would return no work for an operation that the
  /// caller is going to wait for (the host waits in neither case). To shared memory this says that it can run where it
  /// is waited for.
  template <typename Options>
  Options passed(Options options) const {
    options.asyncOp |= !on_shared_memory();
    return options;
  }

  std::function<void()> finish() const {
    auto copies = tensors.finish();
    if (averaged.empty() && after.empty()) return copies;
    return [averaged = averaged, divisor = divisor, copies = std::move(copies), after = after] {
      for (at::Tensor tensor : averaged) {
        const WritableGuard writable(tensor);
        if (tensor.is_floating_point() || tensor.is_complex())
          tensor.div_(divisor);
        else
          tensor.div_(divisor, "trunc");
        record_use_on_current_stream(tensor);
      }
      if (copies) copies();
      for (const auto& each : after) each();
    };
  }

  const BackendConfig::Part part;
  EntryFields fields;
  bool message = false;  // point to point, with `peer` (-1: any)
  int peer = -1;
  std::optional<c10::Device> device;  // whose stream does it; none: the host
  std::vector<int64_t> splits;
  TransportTensors tensors;
  Tensors averaged;
  int divisor = 1;
  Tensors results;  // the caller's
  std::vector<Entered> ended;  // of a batch: the operations that end with it
  std::vector<std::function<void()>> after;  // and what remains to do then
  const at::NoGradGuard no_grad;  // autograd records no collective
};

/// A call of a batch that throws ends it: nothing of it is sent, and later calls belong to no batch.
struct WatchedBackend::BatchGuard {
  explicit BatchGuard(WatchedBackend& backend) : backend(backend) {}
  ~BatchGuard() {
    if (std::uncaught_exceptions() > before) backend.drop_batch();
  }
  WatchedBackend& backend;
  const int before = std::uncaught_exceptions();
};

template <typename Issue>
WatchedBackend::WorkPtr WatchedBackend::run(Call& call, c10d::OpType type, bool async, Issue&& issue) {
  const BatchGuard batch(*this);
  call_collective_listener();
  if (async) call.fields.flags |= log_layout::kAsync;
  std::unique_lock lock(order_);
  const Entered entered = group_->enter(call.fields);
  return issue_entered(call, entered, type, async, lock, issue);
}

/// `lock` holds order_, and is released before anything is waited for. Null for an operation that a batch issues later.
template <typename Issue>
WatchedBackend::WorkPtr WatchedBackend::issue_entered(Call& call, const Entered& entered, c10d::OpType type,
                                                      bool reports, std::unique_lock<std::mutex>& lock, Issue&& issue) {
  const bool in_batch = batch_ && call.on_device();
  const c10::Device device = call.device.value_or(c10::Device(call.part.device));
  OnDevice on_device;
  bool captured = false;  // nothing reports the end of what goes into a graph
  WorkPtr inner;
  try {
    captured = call.on_device() && is_captured(device);
    if (call.device && !captured)
      on_device = {.device = call.device, .reached = mark_stream(*call.device), .peer = call.peer};
    if (!in_batch) {
      const bool timed = !call.message && !captured;
      const CallsTransport calls(entered);
      auto span = timed ? group_->device_spans().begin(entered.seq, call.results) : nullptr;
      inner = issue(backend_of_part(*transport_, call.part.backend));
      TORCH_CHECK(inner, "the transport has not begun the operation");
      group_->device_spans().end(std::move(span), *inner, group_);
    }
  } catch (...) {  // fail() throws what it means
    lock.unlock();
    group_->fail(entered, std::current_exception());
  }
  std::shared_ptr<DeviceOperation> operation;
  if (call.on_device()) {
    if (on_device.reached)  // how far its stream is; its end is reported
      // Messages of a batch run with the group's collectives.
      group_->device_progress().add(entered.entry, {group_->slot(), in_batch ? -1 : call.peer},
                                    {.reached = on_device.reached, .end = {}});
    if (in_batch) {
      batch_->operations.push_back({current_stream(device), issue});
      batch_->entered.push_back(entered);
      if (auto finish = call.finish()) batch_->finish.push_back(std::move(finish));
      batch_->results.insert(batch_->results.end(), call.results.begin(), call.results.end());
      batch_->collectives |= !call.message;
      return nullptr;
    }
    call.ended.push_back(entered);
    if (captured) {
      for (const Entered& each : call.ended) group_->finish(each, log_layout::EntryState::done);
    } else {
      operation = group_->track(std::move(call.ended), inner);
    }
  }
  const bool beside_batch = batch_.has_value();
  lock.unlock();
  WorkPtr work;
  if (call.on_device())
    work = c10::make_intrusive<WatchedWork>(group_, entered, type, std::move(inner), call.finish(),
                                            std::move(call.results), std::move(operation));
  else
    work = c10::make_intrusive<WatchedWork>(group_, entered, type, std::move(inner), call.finish(),
                                            std::move(call.results), reports, std::move(on_device));
  if (beside_batch) {
    lock.lock();
    if (batch_) batch_->on_host.push_back(work);
  }
  return work;
}

/// Whether c10d was called without dist::, so that the arguments have not been checked.
inline bool unchecked() { return CallContext::current() == nullptr; }

}  // namespace lockstep::dist
