#include "dist/watched_backend.h"

#include <fmt/format.h>

#include "dist/call_context.h"
#include "dist/caller.h"
#include "dist/collective_listener.h"
#include "dist/sigpipe.h"
#include "dist/watched_work.h"

namespace lockstep::dist {

using c10d::OpType;
using log_layout::EntryState;

thread_local const CallContext* CallContext::current_ = nullptr;

namespace {
uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

int64_t bytes_of(const at::Tensor& tensor) { return tensor.numel() * static_cast<int64_t>(tensor.element_size()); }
}  // namespace

// The fields of the log's entry and the hash that ranks compare, gathered from the arguments.
struct WatchedBackend::Call {
  Call(CollectiveOp op, c10::ArrayRef<at::Tensor> tensors, int root = -1,
       std::optional<c10d::ReduceOp::RedOpType> reduce_op = {}) {
    const CallContext* context = CallContext::current();
    fields.op = context && context->op() ? *context->op() : op;
    fields.root = root;
    fields.tensor_count = static_cast<int>(tensors.size());
    if (reduce_op) fields.reduce_op = static_cast<uint8_t>(*reduce_op);
    fields.call_site = context ? context->site() : find_caller();
    if (!context) fields.flags |= log_layout::kThroughC10d;
    uint64_t hash = mix(static_cast<uint64_t>(fields.op) << 16 | fields.reduce_op, static_cast<uint64_t>(root) + 2);
    bool first = true;
    for (const at::Tensor& tensor : tensors) {
      const at::Tensor& seen = first && context && context->described() ? *context->described() : tensor;
      const at::IntArrayRef sizes = seen.sizes();
      if (first) {
        fields.dtype = static_cast<uint8_t>(seen.scalar_type());
        fields.shape = sizes.data();
        fields.dimensions = sizes.size();
      }
      hash = mix(hash, static_cast<uint64_t>(seen.scalar_type()) << 32 | sizes.size());
      for (const int64_t size : sizes) hash = mix(hash, static_cast<uint64_t>(size));
      if (!seen.is_sparse()) fields.bytes += bytes_of(seen);
      first = false;
    }
    fields.signature = mix(hash, tensors.size());
  }

  /// Operations whose shapes may differ between ranks: only operation and dtype are compared, and the splits pair by pair.
  void compare_splits(const std::vector<int64_t>& inputs, const std::vector<int64_t>& outputs) {
    splits = inputs;
    splits.insert(splits.end(), outputs.begin(), outputs.end());
    fields.words = &splits;
    fields.signature = mix(static_cast<uint64_t>(fields.op), fields.dtype);
  }

  EntryFields fields;
  std::vector<int64_t> splits;
};

WatchedBackend::WatchedBackend(std::shared_ptr<WatchedGroup> group)
    : c10d::Backend(group->identity().group_rank, static_cast<int>(group->identity().ranks.size())),
      group_(std::move(group)) {
  init();
}

c10::intrusive_ptr<c10d::Backend> WatchedBackend::transport() const {
  std::lock_guard lock(order_);
  if (!transport_) throw Error(fmt::format("group {} is not connected", group_->identity().name));
  return transport_;
}

void WatchedBackend::set_transport(c10::intrusive_ptr<c10d::Backend> transport) {
  if (transport) {
    transport->setGroupUid(getGroupUid());
    transport->setGroupDesc(getGroupDesc());
    transport->setBoundDeviceId(getBoundDeviceId());
  }
  std::unique_lock lock(order_);
  std::swap(transport_, transport);
  lock.unlock();  // the old transport joins its threads when it goes
}

void WatchedBackend::setGroupUid(const std::string& uid) {
  c10d::Backend::setGroupUid(uid);
  std::lock_guard lock(order_);
  if (transport_) transport_->setGroupUid(uid);
}

template <typename Issue>
WatchedBackend::WorkPtr WatchedBackend::run(Call& call, OpType type, bool async, Issue&& issue,
                                            std::function<void()> finally) {
  tell_collective_listener();
  if (async) call.fields.flags |= log_layout::kAsync;
  std::unique_lock lock(order_);
  const Entered entered = group_->enter(call.fields);
  WorkPtr inner;
  try {
    inner = issue(*transport_);
  } catch (...) {  // becomes what it means
    lock.unlock();
    group_->fail(entered, std::current_exception());
  }
  lock.unlock();
  return c10::make_intrusive<WatchedWork>(group_, entered, type, std::move(inner), std::move(finally), async);
}

int WatchedBackend::global_root(int64_t group_root, const char* what) const {
  if (group_root < 0 || group_root >= getSize())
    throw ArgumentError(fmt::format("dist::{}: there is no rank {} in group {} of {} ranks", what, group_root,
                                    group_->identity().name, getSize()));
  return group_->global_rank(static_cast<int>(group_root));
}

std::function<void()> WatchedBackend::average(c10d::ReduceOp& op, const Tensors& results) const {
  if (op.op_ != c10d::ReduceOp::AVG || group_->identity().backend != "gloo") return {};
  op = c10d::ReduceOp(c10d::ReduceOp::SUM);
  return [results, size = getSize()] {
    const at::NoGradGuard no_grad;
    for (at::Tensor tensor : results) {
      if (tensor.is_floating_point() || tensor.is_complex())
        tensor.div_(size);
      else
        tensor.div_(size, "trunc");
    }
  };
}

Entered WatchedBackend::enter_new_group(const std::vector<int64_t>& ranks, uint64_t call_site) {
  Call call(CollectiveOp::new_group, {});
  call.fields.call_site = call_site;
  call.fields.shape = ranks.data();
  call.fields.dimensions = ranks.size();
  for (const int64_t rank : ranks) call.fields.signature = mix(call.fields.signature, static_cast<uint64_t>(rank));
  std::lock_guard lock(order_);
  return group_->enter(call.fields);
}

WatchedBackend::WorkPtr WatchedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Call call(CollectiveOp::broadcast, tensors, global_root(options.rootRank, "broadcast"));
  return run(call, OpType::BROADCAST, options.asyncOp, [&](Backend& b) { return b.broadcast(tensors, options); });
}

WatchedBackend::WorkPtr WatchedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const bool sparse = !tensors.empty() && tensors[0].is_sparse();
  Call call(sparse ? CollectiveOp::all_reduce_sparse : CollectiveOp::all_reduce, tensors, -1, options.reduceOp.op_);
  c10d::AllreduceOptions passed = options;
  auto finally = average(passed.reduceOp, tensors);
  return run(
      call, OpType::ALLREDUCE, options.asyncOp, [&](Backend& b) { return b.allreduce(tensors, passed); },
      std::move(finally));
}

WatchedBackend::WorkPtr WatchedBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Call call(CollectiveOp::all_reduce_sparse, tensors, -1, options.reduceOp.op_);
  return run(call, OpType::_ALLREDUCE_SPARSE, options.asyncOp,
             [&](Backend& b) { return b.allreduce_sparse(tensors, options); });
}

WatchedBackend::WorkPtr WatchedBackend::allreduce_coalesced(Tensors& tensors,
                                                            const c10d::AllreduceCoalescedOptions& options) {
  Call call(CollectiveOp::all_reduce_coalesced, tensors, -1, options.reduceOp.op_);
  c10d::AllreduceCoalescedOptions passed = options;
  auto finally = average(passed.reduceOp, tensors);
  return run(
      call, OpType::ALLREDUCE_COALESCED, options.asyncOp,
      [&](Backend& b) { return b.allreduce_coalesced(tensors, passed); }, std::move(finally));
}

WatchedBackend::WorkPtr WatchedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Call call(CollectiveOp::reduce, tensors, global_root(options.rootRank, "reduce"), options.reduceOp.op_);
  c10d::ReduceOptions passed = options;
  auto finally = average(passed.reduceOp, tensors);
  if (options.rootRank != getRank()) finally = {};
  return run(
      call, OpType::REDUCE, options.asyncOp, [&](Backend& b) { return b.reduce(tensors, passed); }, std::move(finally));
}

WatchedBackend::WorkPtr WatchedBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  Call call(CollectiveOp::all_gather, inputs);
  return run(call, OpType::ALLGATHER, options.asyncOp,
             [&](Backend& b) { return b.allgather(outputs, inputs, options); });
}

WatchedBackend::WorkPtr WatchedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  Call call(CollectiveOp::all_gather_into_tensor, input);
  return run(call, OpType::_ALLGATHER_BASE, options.asyncOp,
             [&](Backend& b) { return b._allgather_base(output, input, options); });
}

WatchedBackend::WorkPtr WatchedBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  Call call(CollectiveOp::all_gather_coalesced, inputs);
  return run(call, OpType::ALLGATHER_COALESCED, options.asyncOp,
             [&](Backend& b) { return b.allgather_coalesced(outputs, inputs, options); });
}

WatchedBackend::WorkPtr WatchedBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                        const c10d::AllgatherOptions& options) {
  Call call(CollectiveOp::all_gather_into_tensor_coalesced, inputs);
  return run(call, OpType::COALESCED, options.asyncOp,
             [&](Backend& b) { return b.allgather_into_tensor_coalesced(outputs, inputs, options); });
}

WatchedBackend::WorkPtr WatchedBackend::gather(TensorLists& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& options) {
  Call call(CollectiveOp::gather, inputs, global_root(options.rootRank, "gather"));
  return run(call, OpType::GATHER, options.asyncOp, [&](Backend& b) { return b.gather(outputs, inputs, options); });
}

WatchedBackend::WorkPtr WatchedBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                const c10d::ScatterOptions& options) {
  Call call(CollectiveOp::scatter, outputs, global_root(options.rootRank, "scatter"));
  return run(call, OpType::SCATTER, options.asyncOp, [&](Backend& b) { return b.scatter(outputs, inputs, options); });
}

WatchedBackend::WorkPtr WatchedBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  Call call(CollectiveOp::reduce_scatter, outputs, -1, options.reduceOp.op_);
  c10d::ReduceScatterOptions passed = options;
  auto finally = average(passed.reduceOp, outputs);
  return run(
      call, OpType::REDUCE_SCATTER, options.asyncOp,
      [&](Backend& b) { return b.reduce_scatter(outputs, inputs, passed); }, std::move(finally));
}

WatchedBackend::WorkPtr WatchedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                             const c10d::ReduceScatterOptions& options) {
  Call call(CollectiveOp::reduce_scatter_tensor, input, -1, options.reduceOp.op_);
  c10d::ReduceScatterOptions passed = options;
  auto finally = average(passed.reduceOp, {output});
  return run(
      call, OpType::_REDUCE_SCATTER_BASE, options.asyncOp,
      [&](Backend& b) { return b._reduce_scatter_base(output, input, passed); }, std::move(finally));
}

WatchedBackend::WorkPtr WatchedBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                        const c10d::ReduceScatterOptions& options) {
  Call call(CollectiveOp::reduce_scatter_tensor_coalesced, inputs, -1, options.reduceOp.op_);
  c10d::ReduceScatterOptions passed = options;
  auto finally = average(passed.reduceOp, outputs);
  return run(
      call, OpType::COALESCED, options.asyncOp,
      [&](Backend& b) { return b.reduce_scatter_tensor_coalesced(outputs, inputs, passed); }, std::move(finally));
}

WatchedBackend::WorkPtr WatchedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<int64_t>& output_splits,
                                                      std::vector<int64_t>& input_splits,
                                                      const c10d::AllToAllOptions& options) {
  Call call(CollectiveOp::all_to_all_single, input);
  // In elements, so that rows of another width are seen, too.
  const auto elements = [size = getSize()](const at::Tensor& tensor, const std::vector<int64_t>& splits) {
    if (splits.empty()) return std::vector<int64_t>(static_cast<size_t>(size), tensor.numel() / size);
    const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
    std::vector<int64_t> result = splits;
    for (int64_t& each : result) each *= rows > 0 ? tensor.numel() / rows : 0;
    return result;
  };
  call.compare_splits(elements(input, input_splits), elements(output, output_splits));
  return run(call, OpType::ALLTOALL_BASE, options.asyncOp,
             [&](Backend& b) { return b.alltoall_base(output, input, output_splits, input_splits, options); });
}

WatchedBackend::WorkPtr WatchedBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllToAllOptions& options) {
  Call call(CollectiveOp::all_to_all, inputs);
  std::vector<int64_t> input_sizes, output_sizes;
  for (const at::Tensor& tensor : inputs) input_sizes.push_back(tensor.numel());
  for (const at::Tensor& tensor : outputs) output_sizes.push_back(tensor.numel());
  call.compare_splits(input_sizes, output_sizes);
  if (group_->identity().backend != "gloo")
    return run(call, OpType::ALLTOALL, options.asyncOp,
               [&](Backend& b) { return b.alltoall(outputs, inputs, options); });

  // Gloo has the form with one tensor only: pack, exchange, unpack.
  const at::NoGradGuard no_grad;
  const auto flatten = [](const Tensors& tensors) {
    Tensors flat;
    for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
    return at::cat(flat);
  };
  at::Tensor packed = flatten(inputs);
  int64_t total = 0;
  for (const int64_t size : output_sizes) total += size;
  at::Tensor received = at::empty({total}, outputs.at(0).options());
  auto unpack = [outputs, received, output_sizes] {
    const at::NoGradGuard guard;
    int64_t at = 0;
    for (size_t i = 0; i < outputs.size(); at += output_sizes[i++]) {
      at::Tensor output = outputs[i];
      output.copy_(received.narrow(0, at, output_sizes[i]).view(output.sizes()));
    }
  };
  return run(
      call, OpType::ALLTOALL, options.asyncOp,
      [&](Backend& b) { return b.alltoall_base(received, packed, output_sizes, input_sizes, options); }, unpack);
}

template <typename Issue>
WatchedBackend::WorkPtr WatchedBackend::run_point_to_point(Call& call, OpType type, int peer, Issue&& issue) {
  call.fields.flags |= log_layout::kPointToPoint;
  const SigpipeBlocked quiet;  // point to point, Gloo writes on this thread
  std::unique_lock lock(order_);
  const Entered entered = group_->enter_point_to_point(call.fields, peer, type == OpType::SEND);
  WorkPtr inner;
  try {
    inner = issue(*transport_);
  } catch (...) {  // becomes what it means
    lock.unlock();
    group_->fail(entered, std::current_exception());
  }
  lock.unlock();
  return c10::make_intrusive<WatchedWork>(group_, entered, type, std::move(inner), nullptr, false);
}

WatchedBackend::WorkPtr WatchedBackend::send(Tensors& tensors, int destination, int tag) {
  Call call(CollectiveOp::send, tensors, global_root(destination, "send"));
  return run_point_to_point(call, OpType::SEND, destination,
                            [&](Backend& b) { return b.send(tensors, destination, tag); });
}

WatchedBackend::WorkPtr WatchedBackend::recv(Tensors& tensors, int source, int tag) {
  Call call(CollectiveOp::recv, tensors, global_root(source, "recv"));
  return run_point_to_point(call, OpType::RECV, source, [&](Backend& b) { return b.recv(tensors, source, tag); });
}

WatchedBackend::WorkPtr WatchedBackend::recvAnysource(Tensors& tensors, int tag) {
  Call call(CollectiveOp::recv, tensors);
  return run_point_to_point(call, OpType::RECVANYSOURCE, -1, [&](Backend& b) { return b.recvAnysource(tensors, tag); });
}

WatchedBackend::WorkPtr WatchedBackend::barrier(const c10d::BarrierOptions& options) {
  Call call(CollectiveOp::barrier, {});
  return run(call, OpType::BARRIER, options.asyncOp, [&](Backend& b) { return b.barrier(options); });
}

void WatchedBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  Call call(CollectiveOp::monitored_barrier, {});
  std::unique_lock lock(order_);
  const Entered entered = group_->enter(call.fields);
  const auto transport = transport_;
  lock.unlock();  // it waits
  const SigpipeBlocked quiet;  // and writes on this thread
  try {
    transport->monitoredBarrier(options, wait_all_ranks);
  } catch (...) {  // becomes what it means
    group_->fail(entered, std::current_exception());
  }
  group_->finish(entered, EntryState::done);
}

WatchedBackend::WorkPtr WatchedBackend::endCoalescing() {
  Call call(CollectiveOp::coalesced, {});
  return run(call, OpType::COALESCED, true, [&](Backend& b) { return b.endCoalescing(); });
}

#if LOCKSTEP_C10D_HAS_WINDOW
WatchedBackend::WorkPtr WatchedBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                                      const c10d::GatherOptions& options) {
  Call call(CollectiveOp::gather_into_tensor, input, global_root(options.rootRank, "gather_into_tensor"));
  return run(call, OpType::GATHER, options.asyncOp,
             [&](Backend& b) { return b.gather_single(output, input, options); });
}
#endif

void WatchedBackend::abort() {
  group_->break_off(log_layout::BreakCause::aborted, fmt::format("group {} was aborted", group_->identity().name));
}

void WatchedBackend::shutdown() {
  group_->break_off(log_layout::BreakCause::excluded, fmt::format("group {} was shut down", group_->identity().name));
}

namespace {
[[noreturn]] void throw_not_watched(const char* what) {
  throw Error(
      fmt::format("{} of a process group of Lockstep is not there: the new group would be neither logged nor freed by "
                  "abort. Use dist::new_group(ranks), and dist::regroup after a rank is lost",
                  what));
}
}  // namespace

c10::intrusive_ptr<c10d::Backend> WatchedBackend::shrink(const std::vector<int64_t>&, int,
                                                         const c10::intrusive_ptr<Options>&) {
  throw_not_watched("shrink");
}
c10::intrusive_ptr<c10d::Backend> WatchedBackend::split(const c10::intrusive_ptr<c10d::Store>&, const std::vector<int>&,
                                                        const c10::intrusive_ptr<Options>&) {
  throw_not_watched("split");
}
c10::intrusive_ptr<c10d::Backend> WatchedBackend::merge(const c10::intrusive_ptr<c10d::Store>&,
                                                        const c10::intrusive_ptr<Options>&, const int&, const int&) {
  throw_not_watched("merge");
}

}  // namespace lockstep::dist
