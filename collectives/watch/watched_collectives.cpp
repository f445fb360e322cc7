// The collectives of the watched backend. On Gloo those that move parts of tensors are made of two that do not care for shapes:
// all_reduce and all_gather of one buffer. Gloo's own have conditions on shapes, lists and dtypes that they find out about when
// other ranks wait already.
#include <fmt/format.h>

#include "collectives/watch/watched_call.h"

namespace lockstep::dist {

using c10d::OpType;

namespace {
using Tensors = WatchedBackend::Tensors;
using TensorLists = WatchedBackend::TensorLists;

void check_list(CollectiveOp op, const std::string& name, const Tensors& tensors, const WatchedGroup::Identity& group,
                Use use) {
  if (tensors.empty()) throw ArgumentError(fmt::format("dist::{}: {} is empty", op_name(op), name));
  for (size_t i = 0; i < tensors.size(); ++i) check_tensor(op_name(op), element(name, i), tensors[i], group, use);
}

void check_all_like(CollectiveOp op, const std::string& name, const Tensors& tensors, const std::string& like_name,
                    const at::Tensor& like) {
  for (size_t i = 0; i < tensors.size(); ++i) check_like(op_name(op), element(name, i), tensors[i], like_name, like);
}

void check_one(CollectiveOp op, const std::string& name, size_t size) {
  check_list_size(op_name(op), name, size, 1, "");
}

void check_same_dtype(CollectiveOp op, const std::string& name, const Tensors& tensors, const at::Tensor& like) {
  for (size_t i = 0; i < tensors.size(); ++i) check_dtype(op_name(op), element(name, i), tensors[i], "the first", like);
}
}  // namespace

int WatchedBackend::global_root(int64_t group_root, const char* what) const {
  if (group_root < 0 || group_root >= getSize())
    throw ArgumentError(fmt::format("dist::{}: there is no rank {} in group {} of {} ranks", what, group_root,
                                    group_->identity().name, getSize()));
  return group_->global_rank(static_cast<int>(group_root));
}

WatchedBackend::WorkPtr WatchedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const int root = global_root(options.rootRank, "broadcast");
  const bool sends = options.rootRank == getRank();
  if (unchecked()) {
    check_list(CollectiveOp::broadcast, "tensors", tensors, group_->identity(), Use::update);
    check_all_like(CollectiveOp::broadcast, "tensors", tensors, "tensors[0]", tensors[0]);
    if (options.rootTensor < 0 || options.rootTensor >= static_cast<int64_t>(tensors.size()))
      throw ArgumentError(fmt::format("dist::broadcast: there is no tensor {}", options.rootTensor));
  }
  Call call(CollectiveOp::broadcast, tensors, root);
  call.results = tensors;
  Tensors passed = sends && tensors.size() == 1 ? call.tensors.read(tensors) : call.tensors.update(tensors);
  return run(call, OpType::BROADCAST, options.asyncOp, [&](Backend& b) { return b.broadcast(passed, options); });
}

WatchedBackend::WorkPtr WatchedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (!tensors.empty() && tensors[0].defined() && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  if (unchecked()) {
    check_list(CollectiveOp::all_reduce, "tensors", tensors, group_->identity(), Use::update);
    check_all_like(CollectiveOp::all_reduce, "tensors", tensors, "tensors[0]", tensors[0]);
    check_reduction("all_reduce", tensors[0], options.reduceOp, group_->identity());
  }
  Call call(CollectiveOp::all_reduce, tensors, -1, options.reduceOp.op_);
  call.results = tensors;
  c10d::AllreduceOptions passed = options;
  Tensors updated = call.tensors.update(tensors);
  if (on_gloo()) call.adapt(passed.reduceOp, updated, getSize());
  return run(call, OpType::ALLREDUCE, options.asyncOp, [&](Backend& b) { return b.allreduce(updated, passed); });
}

WatchedBackend::WorkPtr WatchedBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (unchecked()) {
    if (tensors.empty()) throw ArgumentError("dist::all_reduce: tensors is empty");
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].defined() || !tensors[i].is_sparse())
        throw ArgumentError(fmt::format("dist::all_reduce: {} is not sparse, but others are", element("tensors", i)));
      check_sparse("all_reduce", element("tensors", i), tensors[i], options.reduceOp, group_->identity());
    }
    check_all_like(CollectiveOp::all_reduce, "tensors", tensors, "tensors[0]", tensors[0]);
  }
  Call call(CollectiveOp::all_reduce_sparse, tensors, -1, options.reduceOp.op_);
  call.results = tensors;
  return run(call, OpType::_ALLREDUCE_SPARSE, options.asyncOp, [&](Backend& b) {
    return on_gloo() ? b.allreduce(tensors, options) : b.allreduce_sparse(tensors, options);
  });
}

WatchedBackend::WorkPtr WatchedBackend::allreduce_coalesced(Tensors& tensors,
                                                            const c10d::AllreduceCoalescedOptions& options) {
  constexpr auto op = CollectiveOp::all_reduce_coalesced;
  if (unchecked()) {
    check_list(op, "tensors", tensors, group_->identity(), Use::update);
    check_same_dtype(op, "tensors", tensors, tensors[0]);
    check_reduction(op_name(op), tensors[0], options.reduceOp, group_->identity());
  }
  Call call(op, tensors, -1, options.reduceOp.op_);
  call.results = tensors;
  if (!on_gloo())
    return run(call, OpType::ALLREDUCE_COALESCED, options.asyncOp,
               [&](Backend& b) { return b.allreduce_coalesced(tensors, options); });
  const Tensors updated = call.tensors.update(tensors);
  Tensors buffer{packed(updated)};
  int64_t at = 0;
  for (const at::Tensor& each : updated) {
    call.tensors.unpack(each, buffer[0].narrow(0, at, each.numel()));
    at += each.numel();
  }
  c10d::AllreduceOptions passed = options;
  call.adapt(passed.reduceOp, buffer, getSize());
  return run(call, OpType::ALLREDUCE_COALESCED, options.asyncOp,
             [&](Backend& b) { return b.allreduce(buffer, passed); });
}

WatchedBackend::WorkPtr WatchedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const int root = global_root(options.rootRank, "reduce");
  const bool receives = options.rootRank == getRank();
  if (unchecked()) {
    check_one(CollectiveOp::reduce, "tensors", tensors.size());
    check_list(CollectiveOp::reduce, "tensors", tensors, group_->identity(), Use::update);
    check_reduction("reduce", tensors[0], options.reduceOp, group_->identity());
  }
  Call call(CollectiveOp::reduce, tensors, root, options.reduceOp.op_);
  call.results = tensors;
  c10d::ReduceOptions passed = options;
  Tensors updated = receives ? call.tensors.update(tensors) : call.tensors.read(tensors);
  if (on_gloo()) call.adapt(passed.reduceOp, updated, getSize());
  if (!receives) call.averaged.clear();
  return run(call, OpType::REDUCE, options.asyncOp, [&](Backend& b) { return b.reduce(updated, passed); });
}

WatchedBackend::WorkPtr WatchedBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  if (unchecked()) {
    constexpr auto op = CollectiveOp::all_gather;
    check_one(op, "inputs", inputs.size());
    check_one(op, "outputs", outputs.size());
    check_list(op, "inputs", inputs, group_->identity(), Use::read);
    check_list_size(op_name(op), "outputs[0]", outputs[0].size(), static_cast<size_t>(getSize()),
                    ", one for each rank of the group");
    check_list(op, "outputs[0]", outputs[0], group_->identity(), Use::write);
    check_all_like(op, "outputs[0]", outputs[0], "inputs[0]", inputs[0]);
    check_distinct(op_name(op), "outputs[0]", outputs[0]);
  }
  Call call(CollectiveOp::all_gather, inputs);
  call.results = outputs[0];
  TensorLists written{call.tensors.write(outputs[0])};
  Tensors read = call.tensors.read(inputs);
  return run(call, OpType::ALLGATHER, options.asyncOp, [&](Backend& b) { return b.allgather(written, read, options); });
}

WatchedBackend::WorkPtr WatchedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  if (unchecked()) {
    constexpr const char* name = "all_gather_into_tensor";
    check_tensor(name, "input", input, group_->identity(), Use::read);
    check_tensor(name, "output", output, group_->identity(), Use::write);
    check_stacked(name, "output", output, "input", input, group_->identity());
  }
  Call call(CollectiveOp::all_gather_into_tensor, input);
  call.results = {output};
  at::Tensor written = flat(call.tensors.write(output)), read = flat(call.tensors.read(input));
  return run(call, OpType::_ALLGATHER_BASE, options.asyncOp,
             [&](Backend& b) { return b._allgather_base(written, read, options); });
}

// `outputs`: by rank, each like `inputs`.
WatchedBackend::WorkPtr WatchedBackend::all_gather_parts(Call& call, const Tensors& inputs, const TensorLists& outputs,
                                                         bool async) {
  at::Tensor sent = packed(call.tensors.read(inputs));
  at::Tensor received = at::empty({sent.numel() * getSize()}, sent.options());
  int64_t at = 0;
  for (const Tensors& of_rank : outputs)
    for (const at::Tensor& each : of_rank) {
      call.tensors.unpack(each, received.narrow(0, at, each.numel()));
      at += each.numel();
    }
  c10d::AllgatherOptions options;
  options.asyncOp = async;
  return run(call, OpType::ALLGATHER_COALESCED, async,
             [&](Backend& b) { return b._allgather_base(received, sent, options); });
}

WatchedBackend::WorkPtr WatchedBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  constexpr auto op = CollectiveOp::all_gather_coalesced;
  if (unchecked()) {
    check_list(op, "inputs", inputs, group_->identity(), Use::read);
    check_same_dtype(op, "inputs", inputs, inputs[0]);
    check_list_size(op_name(op), "outputs", outputs.size(), static_cast<size_t>(getSize()),
                    ", one list for each rank of the group");
    for (size_t r = 0; r < outputs.size(); ++r) {
      check_list_size(op_name(op), element("outputs", r), outputs[r].size(), inputs.size(), ", as many as inputs");
      check_list(op, element("outputs", r), outputs[r], group_->identity(), Use::write);
      for (size_t i = 0; i < inputs.size(); ++i)
        check_like(op_name(op), element(element("outputs", r), i), outputs[r][i], element("inputs", i), inputs[i]);
    }
  }
  Call call(op, inputs);
  for (const Tensors& each : outputs) call.results.insert(call.results.end(), each.begin(), each.end());
  if (!on_gloo())
    return run(call, OpType::ALLGATHER_COALESCED, options.asyncOp,
               [&](Backend& b) { return b.allgather_coalesced(outputs, inputs, options); });
  TensorLists written;
  for (const Tensors& each : outputs) written.push_back(call.tensors.write(each));
  return all_gather_parts(call, inputs, written, options.asyncOp);
}

WatchedBackend::WorkPtr WatchedBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                        const c10d::AllgatherOptions& options) {
  constexpr auto op = CollectiveOp::all_gather_into_tensor_coalesced;
  if (unchecked()) {
    check_list(op, "inputs", inputs, group_->identity(), Use::read);
    check_same_dtype(op, "inputs", inputs, inputs[0]);
    check_list_size(op_name(op), "outputs", outputs.size(), inputs.size(), ", as many as inputs");
    check_list(op, "outputs", outputs, group_->identity(), Use::write);
    for (size_t i = 0; i < inputs.size(); ++i)
      check_stacked(op_name(op), element("outputs", i), outputs[i], element("inputs", i), inputs[i],
                    group_->identity());
  }
  Call call(op, inputs);
  call.results = outputs;
  if (!on_gloo())
    return run(call, OpType::COALESCED, options.asyncOp,
               [&](Backend& b) { return b.allgather_into_tensor_coalesced(outputs, inputs, options); });
  TensorLists parts(static_cast<size_t>(getSize()));
  for (const at::Tensor& output : call.tensors.write(outputs)) {
    const at::Tensor all = flat(output);
    const int64_t size = all.numel() / getSize();
    for (size_t r = 0; r < parts.size(); ++r) parts[r].push_back(all.narrow(0, static_cast<int64_t>(r) * size, size));
  }
  return all_gather_parts(call, inputs, parts, options.asyncOp);
}

WatchedBackend::WorkPtr WatchedBackend::gather(TensorLists& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& options) {
  constexpr auto op = CollectiveOp::gather;
  const int root = global_root(options.rootRank, "gather");
  const bool receives = options.rootRank == getRank();
  if (unchecked()) {
    check_one(op, "inputs", inputs.size());
    check_list(op, "inputs", inputs, group_->identity(), Use::read);
    check_list_size(op_name(op), "outputs", outputs.size(), receives ? 1 : 0, receives ? "" : " on ranks but the root");
    if (receives) {
      check_list_size(op_name(op), "outputs[0]", outputs[0].size(), static_cast<size_t>(getSize()),
                      ", one for each rank of the group");
      check_list(op, "outputs[0]", outputs[0], group_->identity(), Use::write);
      check_all_like(op, "outputs[0]", outputs[0], "inputs[0]", inputs[0]);
      check_distinct(op_name(op), "outputs[0]", outputs[0]);
    }
  }
  Call call(op, inputs, root);
  TensorLists written;
  if (receives) {
    call.results = outputs[0];
    written.push_back(call.tensors.write(outputs[0]));
  }
  Tensors read = call.tensors.read(inputs);
  return run(call, OpType::GATHER, options.asyncOp, [&](Backend& b) { return b.gather(written, read, options); });
}

WatchedBackend::WorkPtr WatchedBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                const c10d::ScatterOptions& options) {
  constexpr auto op = CollectiveOp::scatter;
  const int root = global_root(options.rootRank, "scatter");
  const bool sends = options.rootRank == getRank();
  if (unchecked()) {
    check_one(op, "outputs", outputs.size());
    check_list(op, "outputs", outputs, group_->identity(), Use::write);
    check_list_size(op_name(op), "inputs", inputs.size(), sends ? 1 : 0, sends ? "" : " on ranks but the root");
    if (sends) {
      check_list_size(op_name(op), "inputs[0]", inputs[0].size(), static_cast<size_t>(getSize()),
                      ", one for each rank of the group");
      check_list(op, "inputs[0]", inputs[0], group_->identity(), Use::read);
      check_all_like(op, "inputs[0]", inputs[0], "outputs[0]", outputs[0]);
    }
  }
  Call call(op, outputs, root);
  call.results = outputs;
  TensorLists read;
  Tensors written = call.tensors.write(outputs);
  if (sends) {
    read.push_back(call.tensors.read(inputs[0]));
    for (const at::Tensor& each : read[0])
      if (may_share_memory(each, written[0])) {  // it would be overwritten while it is sent
        const at::Tensor target = written[0];
        written[0] = at::empty_like(target);
        call.tensors.unpack(target, written[0]);
        break;
      }
  }
  return run(call, OpType::SCATTER, options.asyncOp, [&](Backend& b) { return b.scatter(written, read, options); });
}

// `inputs`: packed one after the other they hold, for each of `outputs`, the parts of all ranks.
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
  return run(call, type, options.asyncOp, [&](Backend& b) { return b.allreduce(buffer, passed); });
}

WatchedBackend::WorkPtr WatchedBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  constexpr auto op = CollectiveOp::reduce_scatter;
  if (unchecked()) {
    check_one(op, "outputs", outputs.size());
    check_one(op, "inputs", inputs.size());
    check_list(op, "outputs", outputs, group_->identity(), Use::write);
    check_list_size(op_name(op), "inputs[0]", inputs[0].size(), static_cast<size_t>(getSize()),
                    ", one for each rank of the group");
    check_list(op, "inputs[0]", inputs[0], group_->identity(), Use::read);
    check_all_like(op, "inputs[0]", inputs[0], "outputs[0]", outputs[0]);
    check_reduction(op_name(op), outputs[0], options.reduceOp, group_->identity());
  }
  Call call(op, outputs, -1, options.reduceOp.op_);
  call.results = outputs;
  if (on_gloo()) return reduce_scatter_parts(call, OpType::REDUCE_SCATTER, outputs, inputs[0], options);
  Tensors written = call.tensors.write(outputs);
  TensorLists read{call.tensors.read(inputs[0])};
  return run(call, OpType::REDUCE_SCATTER, options.asyncOp,
             [&](Backend& b) { return b.reduce_scatter(written, read, options); });
}

WatchedBackend::WorkPtr WatchedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                             const c10d::ReduceScatterOptions& options) {
  constexpr auto op = CollectiveOp::reduce_scatter_tensor;
  if (unchecked()) {
    check_tensor(op_name(op), "output", output, group_->identity(), Use::write);
    check_tensor(op_name(op), "input", input, group_->identity(), Use::read);
    check_stacked(op_name(op), "input", input, "output", output, group_->identity());
    check_reduction(op_name(op), input, options.reduceOp, group_->identity());
  }
  Call call(op, input, -1, options.reduceOp.op_);
  call.results = {output};
  if (on_gloo()) return reduce_scatter_parts(call, OpType::_REDUCE_SCATTER_BASE, {output}, {input}, options);
  at::Tensor written = flat(call.tensors.write(output)), read = flat(call.tensors.read(input));
  return run(call, OpType::_REDUCE_SCATTER_BASE, options.asyncOp,
             [&](Backend& b) { return b._reduce_scatter_base(written, read, options); });
}

WatchedBackend::WorkPtr WatchedBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                        const c10d::ReduceScatterOptions& options) {
  constexpr auto op = CollectiveOp::reduce_scatter_tensor_coalesced;
  if (unchecked()) {
    check_list(op, "inputs", inputs, group_->identity(), Use::read);
    check_same_dtype(op, "inputs", inputs, inputs[0]);
    check_list_size(op_name(op), "outputs", outputs.size(), inputs.size(), ", as many as inputs");
    check_list(op, "outputs", outputs, group_->identity(), Use::write);
    for (size_t i = 0; i < inputs.size(); ++i)
      check_stacked(op_name(op), element("inputs", i), inputs[i], element("outputs", i), outputs[i],
                    group_->identity());
    check_reduction(op_name(op), inputs[0], options.reduceOp, group_->identity());
  }
  Call call(op, inputs, -1, options.reduceOp.op_);
  call.results = outputs;
  if (on_gloo()) return reduce_scatter_parts(call, OpType::COALESCED, outputs, inputs, options);
  return run(call, OpType::COALESCED, options.asyncOp,
             [&](Backend& b) { return b.reduce_scatter_tensor_coalesced(outputs, inputs, options); });
}

WatchedBackend::WorkPtr WatchedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<int64_t>& output_splits,
                                                      std::vector<int64_t>& input_splits,
                                                      const c10d::AllToAllOptions& options) {
  constexpr auto op = CollectiveOp::all_to_all_single;
  const size_t size = static_cast<size_t>(getSize());
  if (unchecked()) {
    check_tensor(op_name(op), "output", output, group_->identity(), Use::write);
    check_tensor(op_name(op), "input", input, group_->identity(), Use::read);
    check_dtype(op_name(op), "output", output, "input", input);
    check_splits(op_name(op), "output", output, output_splits, size);
    check_splits(op_name(op), "input", input, input_splits, size);
  }
  Call call(op, input);
  call.results = {output};
  at::Tensor written = flat(call.tensors.write(output)), read = flat(call.tensors.read(input));
  // In elements of what is passed, so that rows of another width are seen, too.
  const auto elements = [&](const at::Tensor& tensor, const at::Tensor& passed, const std::vector<int64_t>& splits) {
    if (splits.empty()) return std::vector<int64_t>(size, passed.numel() / static_cast<int64_t>(size));
    std::vector<int64_t> result = splits;
    for (int64_t& each : result) each *= tensor.size(0) > 0 ? passed.numel() / tensor.size(0) : 0;
    return result;
  };
  auto sent = elements(input, read, input_splits), received = elements(output, written, output_splits);
  call.compare_splits(sent, received);
  if (may_share_memory(read, written)) read = read.clone();  // it would be overwritten while it is sent
  if (input_splits.empty() && output_splits.empty()) sent = received = {};
  return run(call, OpType::ALLTOALL_BASE, options.asyncOp,
             [&](Backend& b) { return b.alltoall_base(written, read, received, sent, options); });
}

WatchedBackend::WorkPtr WatchedBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllToAllOptions& options) {
  constexpr auto op = CollectiveOp::all_to_all;
  if (unchecked()) {
    for (const auto& [name, list, use] :
         {std::tuple{"inputs", &inputs, Use::read}, {"outputs", &outputs, Use::write}}) {
      check_list_size(op_name(op), name, list->size(), static_cast<size_t>(getSize()),
                      ", one for each rank of the group");
      check_list(op, name, *list, group_->identity(), use);
      check_same_dtype(op, name, *list, inputs[0]);
    }
    check_distinct(op_name(op), "outputs", outputs);
  }
  Call call(op, inputs);
  call.results = outputs;
  Tensors written = call.tensors.write(outputs), read = call.tensors.read(inputs);
  std::vector<int64_t> input_sizes, output_sizes;
  for (const at::Tensor& tensor : read) input_sizes.push_back(tensor.numel());
  for (const at::Tensor& tensor : written) output_sizes.push_back(tensor.numel());
  call.compare_splits(input_sizes, output_sizes);
  if (!on_gloo())
    return run(call, OpType::ALLTOALL, options.asyncOp, [&](Backend& b) { return b.alltoall(written, read, options); });

  // Gloo has the form with one tensor only: pack, exchange, unpack.
  at::Tensor sent = packed(read);
  int64_t total = 0;
  for (const int64_t size : output_sizes) total += size;
  at::Tensor received = at::empty({total}, sent.options());
  int64_t at = 0;
  for (const at::Tensor& each : written) {
    call.tensors.unpack(each, received.narrow(0, at, each.numel()));
    at += each.numel();
  }
  return run(call, OpType::ALLTOALL, options.asyncOp,
             [&](Backend& b) { return b.alltoall_base(received, sent, output_sizes, input_sizes, options); });
}

#if LOCKSTEP_C10D_HAS_WINDOW
WatchedBackend::WorkPtr WatchedBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                                      const c10d::GatherOptions& options) {
  const int root = global_root(options.rootRank, "gather_into_tensor");
  const bool receives = options.rootRank == getRank();
  if (unchecked()) {
    check_tensor("gather_into_tensor", "input", input, group_->identity(), Use::read);
    if (receives) {
      check_tensor("gather_into_tensor", "output", output, group_->identity(), Use::write);
      check_stacked("gather_into_tensor", "output", output, "input", input, group_->identity());
    }
  }
  Call call(CollectiveOp::gather_into_tensor, input, root);
  call.results = {output};
  at::Tensor written = receives ? flat(call.tensors.write(output)) : output, read = flat(call.tensors.read(input));
  return run(call, OpType::GATHER, options.asyncOp,
             [&](Backend& b) { return b.gather_single(written, read, options); });
}
#endif

}  // namespace lockstep::dist
