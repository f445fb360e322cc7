// The collectives of the watched backend that reduce. On Gloo each is an all_reduce, or a reduce, of one buffer, for
// which shapes do not matter; what Gloo can't reduce is adapted (Call::adapt). Shared memory reduces and scatters itself.
#include <fmt/format.h>

#include "collectives/watch/call_checks.h"
#include "collectives/watch/spelling.h"
#include "collectives/watch/watched_call.h"

namespace lockstep::dist {

using c10d::OpType;

namespace {
using Tensors = WatchedBackend::Tensors;
using TensorLists = WatchedBackend::TensorLists;
}  // namespace

WatchedBackend::WorkPtr WatchedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (!tensors.empty() && tensors[0].defined() && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  if (unchecked()) {
    const CallChecks check(CollectiveOp::all_reduce, group_->identity());
    check.list("tensors", tensors, Use::update);
    check.all_like("tensors", tensors, "tensors[0]", tensors[0]);
    check.reduction(tensors[0], options.reduceOp);
  }
  Call call(config(), CollectiveOp::all_reduce, tensors, -1, options.reduceOp.op_);
  call.results = tensors;
  c10d::AllreduceOptions passed = options;
  Tensors updated = call.tensors.update(tensors);
  if (call.works_as_gloo()) call.adapt(passed.reduceOp, updated, getSize());
  return run(call, OpType::ALLREDUCE, options.asyncOp,
             [=, passed = call.passed(passed)](Backend& b) mutable { return b.allreduce(updated, passed); });
}

WatchedBackend::WorkPtr WatchedBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (unchecked()) {
    if (tensors.empty()) throw ArgumentError(dist_name("all_reduce") + ": tensors is empty");
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined() || !tensors[i].is_sparse())
        throw ArgumentError(
            fmt::format("{}: {} is not sparse, but others are", dist_name("all_reduce"), element("tensors", i)));
      check_sparse("all_reduce", element("tensors", i), tensors[i], options.reduceOp, group_->identity());
    }
    CallChecks(CollectiveOp::all_reduce, group_->identity()).all_like("tensors", tensors, "tensors[0]", tensors[0]);
  }
  Call call(config(), CollectiveOp::all_reduce_sparse, tensors, -1, options.reduceOp.op_);
  call.results = tensors;
  return run(call, OpType::_ALLREDUCE_SPARSE, options.asyncOp,
             [=, gloo = call.works_as_gloo(), options = call.passed(options)](Backend& b) mutable {
               return gloo ? b.allreduce(tensors, options) : b.allreduce_sparse(tensors, options);
             });
}

WatchedBackend::WorkPtr WatchedBackend::allreduce_coalesced(Tensors& tensors,
                                                            const c10d::AllreduceCoalescedOptions& options) {
  constexpr auto op = CollectiveOp::all_reduce_coalesced;
  if (unchecked()) {
    const CallChecks check(op, group_->identity());
    check.list("tensors", tensors, Use::update);
    check.same_dtype("tensors", tensors, tensors[0]);
    check.reduction(tensors[0], options.reduceOp);
  }
  Call call(config(), op, tensors, -1, options.reduceOp.op_);
  call.results = tensors;
  Tensors updated = call.tensors.update(tensors);
  if (!call.works_as_gloo())
    return run(
        call, OpType::ALLREDUCE_COALESCED, options.asyncOp,
        [=, options = call.passed(options)](Backend& b) mutable { return b.allreduce_coalesced(updated, options); });
  Tensors buffer{packed(updated)};
  call.tensors.unpack_all(updated, buffer[0]);
  c10d::AllreduceOptions passed = options;
  call.adapt(passed.reduceOp, buffer, getSize());
  return run(call, OpType::ALLREDUCE_COALESCED, options.asyncOp,
             [=, passed = call.passed(passed)](Backend& b) mutable { return b.allreduce(buffer, passed); });
}

WatchedBackend::WorkPtr WatchedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const int root = global_root(options.rootRank, "reduce");
  const bool receives = options.rootRank == getRank();
  if (unchecked()) {
    const CallChecks check(CollectiveOp::reduce, group_->identity());
    check.one("tensors", tensors.size());
    check.list("tensors", tensors, Use::update);
    check.reduction(tensors[0], options.reduceOp);
  }
  Call call(config(), CollectiveOp::reduce, tensors, root, options.reduceOp.op_);
  call.results = tensors;
  c10d::ReduceOptions passed = options;
  Tensors updated = receives ? call.tensors.update(tensors) : call.tensors.read(tensors);
  if (call.works_as_gloo()) call.adapt(passed.reduceOp, updated, getSize());
  if (!receives) call.averaged.clear();
  return run(call, OpType::REDUCE, options.asyncOp,
             [=, passed = call.passed(passed)](Backend& b) mutable { return b.reduce(updated, passed); });
}

// `inputs`, packed one after the other, hold for each of `outputs` the parts of all ranks.
WatchedBackend::WorkPtr WatchedBackend::reduce_scatter_parts(Call& call, OpType type, const Tensors& outputs,
                                                             const Tensors& inputs,
                                                             const c10d::ReduceScatterOptions& options) {
  Tensors buffer{packed(call.tensors.read(inputs))}, own;
  int64_t at = 0;
  for (const at::Tensor& output : call.tensors.write(outputs)) {
    own.push_back(buffer[0].narrow(0, at + getRank() * output.numel(), output.numel()));
    call.tensors.unpack(output, own.back());
    at += output.numel() * getSize();
  }
  c10d::AllreduceOptions passed;
  passed.reduceOp = options.reduceOp;
  passed.timeout = options.timeout;
  passed.asyncOp = options.asyncOp;
  call.adapt(passed.reduceOp, own, getSize());
  return run(call, type, options.asyncOp,
             [=, passed = call.passed(passed)](Backend& b) mutable { return b.allreduce(buffer, passed); });
}

WatchedBackend::WorkPtr WatchedBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  constexpr auto op = CollectiveOp::reduce_scatter;
  if (unchecked()) {
    const CallChecks check(op, group_->identity());
    check.one("outputs", outputs.size());
    check.one("inputs", inputs.size());
    check.list("outputs", outputs, Use::write);
    check.list_of_ranks("inputs[0]", inputs[0], Use::read, "outputs[0]", outputs[0]);
    check.reduction(outputs[0], options.reduceOp);
  }
  Call call(config(), op, outputs, -1, options.reduceOp.op_);
  call.results = outputs;
  if (call.works_as_gloo() && !call.on_shared_memory())
    return reduce_scatter_parts(call, OpType::REDUCE_SCATTER, outputs, inputs[0], options);
  Tensors written = call.tensors.write(outputs);
  TensorLists read{call.tensors.read(inputs[0])};
  c10d::ReduceScatterOptions passed = options;
  if (call.on_shared_memory()) {
    for (at::Tensor& each : read[0])
      if (may_share_memory(each, written[0])) each = each.clone();  // it would be overwritten while it is read
    call.adapt(passed.reduceOp, written, getSize());
  }
  return run(call, OpType::REDUCE_SCATTER, options.asyncOp,
             [=, passed = call.passed(passed)](Backend& b) mutable { return b.reduce_scatter(written, read, passed); });
}

WatchedBackend::WorkPtr WatchedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                             const c10d::ReduceScatterOptions& options) {
  constexpr auto op = CollectiveOp::reduce_scatter_tensor;
  if (unchecked()) {
    const CallChecks check(op, group_->identity());
    check.tensor("output", output, Use::write);
    check.tensor("input", input, Use::read);
    check.stacked("input", input, "output", output);
    check.reduction(input, options.reduceOp);
  }
  Call call(config(), op, input, -1, options.reduceOp.op_);
  call.results = {output};
  if (call.works_as_gloo() && !call.on_shared_memory())
    return reduce_scatter_parts(call, OpType::_REDUCE_SCATTER_BASE, {output}, {input}, options);
  at::Tensor written = flat(call.tensors.write(output)), read = flat(call.tensors.read(input));
  c10d::ReduceScatterOptions passed = options;
  if (call.on_shared_memory()) {
    if (may_share_memory(read, written)) read = read.clone();  // it would be overwritten while it is read
    call.adapt(passed.reduceOp, {written}, getSize());
  }
  return run(
      call, OpType::_REDUCE_SCATTER_BASE, options.asyncOp,
      [=, passed = call.passed(passed)](Backend& b) mutable { return b._reduce_scatter_base(written, read, passed); });
}

WatchedBackend::WorkPtr WatchedBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                        const c10d::ReduceScatterOptions& options) {
  constexpr auto op = CollectiveOp::reduce_scatter_tensor_coalesced;
  if (unchecked()) {
    const CallChecks check(op, group_->identity());
    check.list("inputs", inputs, Use::read);
    check.same_dtype("inputs", inputs, inputs[0]);
    check.size("outputs", outputs.size(), inputs.size(), ", as many as inputs");
    check.list("outputs", outputs, Use::write);
    check.all_stacked("inputs", inputs, "outputs", outputs);
    check.reduction(inputs[0], options.reduceOp);
  }
  Call call(config(), op, inputs, -1, options.reduceOp.op_);
  call.results = outputs;
  if (call.works_as_gloo()) return reduce_scatter_parts(call, OpType::COALESCED, outputs, inputs, options);
  Tensors written = call.tensors.write(outputs), read = call.tensors.read(inputs);
  return run(call, OpType::COALESCED, options.asyncOp, [=, options = call.passed(options)](Backend& b) mutable {
    return b.reduce_scatter_tensor_coalesced(written, read, options);
  });
}

}  // namespace lockstep::dist
