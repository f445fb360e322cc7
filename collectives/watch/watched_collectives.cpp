// The collectives of the watched backend that move data. Gloo's own that move parts of tensors have conditions on
// shapes, lists and dtypes that they find out about when other ranks wait already. On Gloo they are therefore made of
// all_gather of one buffer. Tensors of a device that go over Gloo are copied to the host and back.
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

int WatchedBackend::global_root(int64_t group_root, const char* what) const {
  if (group_root < 0 || group_root >= getSize())
    throw ArgumentError(fmt::format("{}: there is no rank {} in group {} of {} ranks", dist_name(what), group_root,
                                    group_->identity().name, getSize()));
  return group_->global_rank(static_cast<int>(group_root));
}

WatchedBackend::WorkPtr WatchedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const int root = global_root(options.rootRank, "broadcast");
  const bool sends = options.rootRank == getRank();
  if (unchecked()) {
    const CallChecks check(CollectiveOp::broadcast, group_->identity());
    check.list("tensors", tensors, Use::update);
    check.all_like("tensors", tensors, "tensors[0]", tensors[0]);
    if (options.rootTensor < 0 || options.rootTensor >= static_cast<int64_t>(tensors.size()))
      throw ArgumentError(fmt::format("{}: there is no tensor {}", dist_name("broadcast"), options.rootTensor));
  }
  Call call(config(), CollectiveOp::broadcast, tensors, root);
  call.results = tensors;
  Tensors passed = sends && tensors.size() == 1 ? call.tensors.read(tensors) : call.tensors.update(tensors);
  return run(call, OpType::BROADCAST, options.asyncOp,
             [=, options = call.passed(options)](Backend& b) mutable { return b.broadcast(passed, options); });
}

WatchedBackend::WorkPtr WatchedBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  if (unchecked()) {
    const CallChecks check(CollectiveOp::all_gather, group_->identity());
    check.one("inputs", inputs.size());
    check.one("outputs", outputs.size());
    check.list("inputs", inputs, Use::read);
    check.list_of_ranks("outputs[0]", outputs[0], Use::write, "inputs[0]", inputs[0]);
  }
  Call call(config(), CollectiveOp::all_gather, inputs);
  call.results = outputs[0];
  TensorLists written{call.tensors.write(outputs[0])};
  Tensors read = call.tensors.read(inputs);
  return run(call, OpType::ALLGATHER, options.asyncOp,
             [=, options = call.passed(options)](Backend& b) mutable { return b.allgather(written, read, options); });
}

WatchedBackend::WorkPtr WatchedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  if (unchecked()) {
    const CallChecks check(CollectiveOp::all_gather_into_tensor, group_->identity());
    check.tensor("input", input, Use::read);
    check.tensor("output", output, Use::write);
    check.stacked("output", output, "input", input);
  }
  Call call(config(), CollectiveOp::all_gather_into_tensor, input);
  call.results = {output};
  at::Tensor written = flat(call.tensors.write(output)), read = flat(call.tensors.read(input));
  return run(call, OpType::_ALLGATHER_BASE, options.asyncOp, [=, options = call.passed(options)](Backend& b) mutable {
    return b._allgather_base(written, read, options);
  });
}

// `outputs` are by rank, each like `inputs`.
WatchedBackend::WorkPtr WatchedBackend::all_gather_parts(Call& call, const Tensors& inputs, const TensorLists& outputs,
                                                         bool async) {
  at::Tensor sent = packed(call.tensors.read(inputs));
  at::Tensor received = at::empty({sent.numel() * getSize()}, sent.options());
  Tensors all;
  for (const Tensors& of_rank : outputs) all.insert(all.end(), of_rank.begin(), of_rank.end());
  call.tensors.unpack_all(all, received);
  c10d::AllgatherOptions options;
  options.asyncOp = async;
  return run(call, OpType::ALLGATHER_COALESCED, async, [=, options = call.passed(options)](Backend& b) mutable {
    return b._allgather_base(received, sent, options);
  });
}

WatchedBackend::WorkPtr WatchedBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  constexpr auto op = CollectiveOp::all_gather_coalesced;
  if (unchecked()) {
    const CallChecks check(op, group_->identity());
    check.list("inputs", inputs, Use::read);
    check.same_dtype("inputs", inputs, inputs[0]);
    check.size_of_group("outputs", outputs.size(), ", one list for each rank of the group");
    for (size_t r = 0; r < outputs.size(); ++r) {
      check.size(element("outputs", r), outputs[r].size(), inputs.size(), ", as many as inputs");
      check.list(element("outputs", r), outputs[r], Use::write);
      for (size_t i = 0; i < inputs.size(); ++i)
        check_like(op_name(op), element(element("outputs", r), i), outputs[r][i], element("inputs", i), inputs[i]);
    }
  }
  Call call(config(), op, inputs);
  for (const Tensors& each : outputs) call.results.insert(call.results.end(), each.begin(), each.end());
  TensorLists written;  // NCCL has no allgather_coalesced

  for (const Tensors& each : outputs) written.push_back(call.tensors.write(each));
  return all_gather_parts(call, inputs, written, options.asyncOp);
}

WatchedBackend::WorkPtr WatchedBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                        const c10d::AllgatherOptions& options) {
  constexpr auto op = CollectiveOp::all_gather_into_tensor_coalesced;
  if (unchecked()) {
    const CallChecks check(op, group_->identity());
    check.list("inputs", inputs, Use::read);
    check.same_dtype("inputs", inputs, inputs[0]);
    check.size("outputs", outputs.size(), inputs.size(), ", as many as inputs");
    check.list("outputs", outputs, Use::write);
    check.all_stacked("outputs", outputs, "inputs", inputs);
  }
  Call call(config(), op, inputs);
  call.results = outputs;
  if (!call.works_as_gloo()) {
    Tensors written = call.tensors.write(outputs), read = call.tensors.read(inputs);
    return run(call, OpType::COALESCED, options.asyncOp, [=, options = call.passed(options)](Backend& b) mutable {
      return b.allgather_into_tensor_coalesced(written, read, options);
    });
  }
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
    const CallChecks check(op, group_->identity());
    check.one("inputs", inputs.size());
    check.list("inputs", inputs, Use::read);
    check.one_on_root("outputs", outputs.size(), receives);
    if (receives) check.list_of_ranks("outputs[0]", outputs[0], Use::write, "inputs[0]", inputs[0]);
  }
  Call call(config(), op, inputs, root);
  TensorLists written;
  if (receives) {
    call.results = outputs[0];
    written.push_back(call.tensors.write(outputs[0]));
  }
  Tensors read = call.tensors.read(inputs);
  return run(call, OpType::GATHER, options.asyncOp,
             [=, options = call.passed(options)](Backend& b) mutable { return b.gather(written, read, options); });
}

WatchedBackend::WorkPtr WatchedBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                                const c10d::ScatterOptions& options) {
  constexpr auto op = CollectiveOp::scatter;
  const int root = global_root(options.rootRank, "scatter");
  const bool sends = options.rootRank == getRank();
  if (unchecked()) {
    const CallChecks check(op, group_->identity());
    check.one("outputs", outputs.size());
    check.list("outputs", outputs, Use::write);
    check.one_on_root("inputs", inputs.size(), sends);
    if (sends) check.list_of_ranks("inputs[0]", inputs[0], Use::read, "outputs[0]", outputs[0]);
  }
  Call call(config(), op, outputs, root);
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
  return run(call, OpType::SCATTER, options.asyncOp,
             [=, options = call.passed(options)](Backend& b) mutable { return b.scatter(written, read, options); });
}

WatchedBackend::WorkPtr WatchedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                      std::vector<int64_t>& output_splits,
                                                      std::vector<int64_t>& input_splits,
                                                      const c10d::AllToAllOptions& options) {
  constexpr auto op = CollectiveOp::all_to_all_single;
  const size_t size = static_cast<size_t>(getSize());
  if (unchecked()) {
    const CallChecks check(op, group_->identity());
    check.tensor("output", output, Use::write);
    check.tensor("input", input, Use::read);
    check_dtype(op_name(op), "output", output, "input", input);
    check.splits("output", output, output_splits);
    check.splits("input", input, input_splits);
  }
  Call call(config(), op, input);
  call.results = {output};
  at::Tensor written = flat(call.tensors.write(output)), read = flat(call.tensors.read(input));
  // The count is in elements of what is passed, so that rows of another width are seen, too.
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
  return run(call, OpType::ALLTOALL_BASE, options.asyncOp, [=, options = call.passed(options)](Backend& b) mutable {
    return b.alltoall_base(written, read, received, sent, options);
  });
}

WatchedBackend::WorkPtr WatchedBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllToAllOptions& options) {
  constexpr auto op = CollectiveOp::all_to_all;
  if (unchecked()) {
    const CallChecks check(op, group_->identity());
    for (const auto& [name, list, use] :
         {std::tuple{"inputs", &inputs, Use::read}, {"outputs", &outputs, Use::write}}) {
      check.size_of_group(name, list->size());
      check.list(name, *list, use);
      check.same_dtype(name, *list, inputs[0]);
    }
    check.distinct("outputs", outputs);
  }
  Call call(config(), op, inputs);
  call.results = outputs;
  Tensors written = call.tensors.write(outputs), read = call.tensors.read(inputs);
  std::vector<int64_t> input_sizes, output_sizes;
  for (const at::Tensor& tensor : read) input_sizes.push_back(tensor.numel());
  for (const at::Tensor& tensor : written) output_sizes.push_back(tensor.numel());
  call.compare_splits(input_sizes, output_sizes);
  if (!call.works_as_gloo())
    return run(call, OpType::ALLTOALL, options.asyncOp,
               [=, options = call.passed(options)](Backend& b) mutable { return b.alltoall(written, read, options); });

  // Gloo has the form with one tensor only: pack, exchange, unpack.
  at::Tensor sent = packed(read);
  int64_t total = 0;
  for (const int64_t size : output_sizes) total += size;
  at::Tensor received = at::empty({total}, sent.options());
  call.tensors.unpack_all(written, received);
  return run(call, OpType::ALLTOALL, options.asyncOp, [=, options = call.passed(options)](Backend& b) mutable {
    return b.alltoall_base(received, sent, output_sizes, input_sizes, options);
  });
}

#if LOCKSTEP_C10D_HAS_WINDOW
WatchedBackend::WorkPtr WatchedBackend::gather_single(at::Tensor& output, at::Tensor& input,
                                                      const c10d::GatherOptions& options) {
  const int root = global_root(options.rootRank, "gather_into_tensor");
  const bool receives = options.rootRank == getRank();
  if (unchecked()) {
    const CallChecks check(CollectiveOp::gather_into_tensor, group_->identity());
    check.tensor("input", input, Use::read);
    if (receives) {
      check.tensor("output", output, Use::write);
      check.stacked("output", output, "input", input);
    }
  }
  Call call(config(), CollectiveOp::gather_into_tensor, input, root);
  call.results = {output};
  at::Tensor written = receives ? flat(call.tensors.write(output)) : output, read = flat(call.tensors.read(input));
  return run(call, OpType::GATHER, options.asyncOp, [=, options = call.passed(options)](Backend& b) mutable {
    return b.gather_single(written, read, options);
  });
}
#endif

}  // namespace lockstep::dist
