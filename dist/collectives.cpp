// The collectives of dist::: arguments checked, views made where the transport does not know the dtype, then c10d's ProcessGroup,
// whose backend is the watched one.
#include "dist/arguments.h"
#include "dist/call_context.h"
#include "dist/dist.h"
#include "dist/libtorch_version.h"
#include "dist/watched_work.h"

#include <fmt/format.h>

#define LOCKSTEP_CALL_SITE __builtin_return_address(0)

namespace lockstep::dist {

namespace {
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

Work finish(c10::intrusive_ptr<c10d::Work> work, bool async_op, const char* label) {
  if (!async_op) work->wait();
  return Work(std::move(work), label);
}

size_t size_of(const GroupEntry& entry) { return entry.group->identity().ranks.size(); }

bool this_rank_is(int group_rank, const GroupEntry& entry) { return group_rank == entry.group->identity().group_rank; }

std::string element(const char* list, size_t index) { return fmt::format("{}[{}]", list, index); }

Tensors movable_list(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) result.push_back(movable(tensor));
  return result;
}

// Allocates the elements that are not there; checks the others.
void complete_list(const char* function, const char* name, Tensors& list, const at::Tensor& like,
                   const GroupEntry& entry) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].defined()) list[i] = at::empty_like(like);
    check_tensor(function, element(name, i), list[i], entry);
    check_like(function, element(name, i), list[i], "tensor", like);
  }
}
}  // namespace

Work all_reduce(const at::Tensor& tensor, const ReduceOp& op, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("all_reduce", group);
  Tensors tensors;
  if (tensor.defined() && tensor.is_sparse()) {
    if (op.op_ != ReduceOp::SUM) throw ArgumentError("dist::all_reduce: sparse tensors can be summed only");
    tensors = {tensor};
  } else {
    check_tensor("all_reduce", "tensor", tensor, entry);
    tensors = {reducible("all_reduce", tensor, op, entry)};
  }
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  options.asyncOp = async_op;
  const CallContext call(LOCKSTEP_CALL_SITE, &tensor);
  return finish(entry.handle->allreduce(tensors, options), async_op, "all_reduce");
}

Work broadcast(const at::Tensor& tensor, int src, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("broadcast", group);
  check_tensor("broadcast", "tensor", tensor, entry);
  c10d::BroadcastOptions options;
  options.rootRank = require_rank("broadcast", "src", src, entry);
  options.asyncOp = async_op;
  Tensors tensors{movable(tensor)};
  const CallContext call(LOCKSTEP_CALL_SITE, &tensor);
  return finish(entry.handle->broadcast(tensors, options), async_op, "broadcast");
}

Work reduce(const at::Tensor& tensor, int dst, const ReduceOp& op, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("reduce", group);
  check_tensor("reduce", "tensor", tensor, entry);
  c10d::ReduceOptions options;
  options.reduceOp = op;
  options.rootRank = require_rank("reduce", "dst", dst, entry);
  options.asyncOp = async_op;
  Tensors tensors{reducible("reduce", tensor, op, entry)};
  const CallContext call(LOCKSTEP_CALL_SITE, &tensor);
  return finish(entry.handle->reduce(tensors, options), async_op, "reduce");
}

Work all_gather(Tensors& tensor_list, const at::Tensor& tensor, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("all_gather", group);
  check_tensor("all_gather", "tensor", tensor, entry);
  check_list_size("all_gather", "tensor_list", tensor_list.size(), size_of(entry),
                  ", one for each rank of the group (all_gather(t) returns the list)");
  complete_list("all_gather", "tensor_list", tensor_list, tensor, entry);
  c10d::AllgatherOptions options;
  options.asyncOp = async_op;
  TensorLists outputs{movable_list(tensor_list)};
  Tensors inputs{movable(tensor)};
  const CallContext call(LOCKSTEP_CALL_SITE, &tensor);
  return finish(entry.handle->allgather(outputs, inputs, options), async_op, "all_gather");
}

Tensors all_gather(const at::Tensor& tensor, const Group& group) {
  const GroupEntry entry = require_member("all_gather", group);
  check_tensor("all_gather", "tensor", tensor, entry);
  Tensors list(size_of(entry));
  complete_list("all_gather", "tensor_list", list, tensor, entry);
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  TensorLists outputs{movable_list(list)};
  Tensors inputs{movable(tensor)};
  const CallContext call(LOCKSTEP_CALL_SITE, &tensor);
  finish(entry.handle->allgather(outputs, inputs, options), false, "all_gather");
  return list;
}

Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("all_gather_into_tensor", group);
  check_tensor("all_gather_into_tensor", "input", input, entry);
  check_tensor("all_gather_into_tensor", "output", output, entry);
  if (output.numel() != input.numel() * static_cast<int64_t>(size_of(entry)) ||
      output.scalar_type() != input.scalar_type())
    throw ArgumentError(
        fmt::format("dist::all_gather_into_tensor: output has {} elements of {}; it needs {} of {} (group size × "
                    "those of input)",
                    output.numel(), c10::toString(output.scalar_type()),
                    input.numel() * static_cast<int64_t>(size_of(entry)), c10::toString(input.scalar_type())));
  c10d::AllgatherOptions options;
  options.asyncOp = async_op;
  at::Tensor sent = movable(input), received = movable(output);
  const CallContext call(LOCKSTEP_CALL_SITE, &input);
  return finish(version::all_gather_single(*entry.handle, received, sent, options), async_op, "all_gather_into_tensor");
}

Work reduce_scatter(const at::Tensor& output, const Tensors& input_list, const ReduceOp& op, const Group& group,
                    bool async_op) {
  const GroupEntry entry = require_member("reduce_scatter", group);
  check_tensor("reduce_scatter", "output", output, entry);
  check_list_size("reduce_scatter", "input_list", input_list.size(), size_of(entry),
                  ", one for each rank of the group");
  Tensors inputs;
  for (size_t i = 0; i < input_list.size(); ++i) {
    check_tensor("reduce_scatter", element("input_list", i), input_list[i], entry);
    check_like("reduce_scatter", element("input_list", i), input_list[i], "output", output);
    inputs.push_back(reducible("reduce_scatter", input_list[i], op, entry));
  }
  c10d::ReduceScatterOptions options;
  options.reduceOp = op;
  options.asyncOp = async_op;
  Tensors outputs{reducible("reduce_scatter", output, op, entry)};
  TensorLists lists{inputs};
  const CallContext call(LOCKSTEP_CALL_SITE, &output);
  return finish(entry.handle->reduce_scatter(outputs, lists, options), async_op, "reduce_scatter");
}

Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const ReduceOp& op, const Group& group,
                           bool async_op) {
  const GroupEntry entry = require_member("reduce_scatter_tensor", group);
  check_tensor("reduce_scatter_tensor", "output", output, entry);
  check_tensor("reduce_scatter_tensor", "input", input, entry);
  if (input.numel() != output.numel() * static_cast<int64_t>(size_of(entry)) ||
      output.scalar_type() != input.scalar_type())
    throw ArgumentError(
        fmt::format("dist::reduce_scatter_tensor: input has {} elements of {}; it needs {} of {} (group size × "
                    "those of output)",
                    input.numel(), c10::toString(input.scalar_type()),
                    output.numel() * static_cast<int64_t>(size_of(entry)), c10::toString(output.scalar_type())));
  c10d::ReduceScatterOptions options;
  options.reduceOp = op;
  options.asyncOp = async_op;
  at::Tensor sent = reducible("reduce_scatter_tensor", input, op, entry);
  at::Tensor received = reducible("reduce_scatter_tensor", output, op, entry);
  const CallContext call(LOCKSTEP_CALL_SITE, &input);
  return finish(version::reduce_scatter_single(*entry.handle, received, sent, options), async_op,
                "reduce_scatter_tensor");
}

namespace {
Work gather_from(const void* site, const at::Tensor& tensor, Tensors& gather_list, int dst, const Group& group,
                 bool async_op, bool allocate) {
  const GroupEntry entry = require_member("gather", group);
  check_tensor("gather", "tensor", tensor, entry);
  c10d::GatherOptions options;
  options.rootRank = require_rank("gather", "dst", dst, entry);
  options.asyncOp = async_op;
  TensorLists outputs;
  if (this_rank_is(static_cast<int>(options.rootRank), entry)) {
    if (allocate) gather_list.resize(size_of(entry));
    check_list_size("gather", "gather_list", gather_list.size(), size_of(entry),
                    " on dst, one for each rank of the group");
    complete_list("gather", "gather_list", gather_list, tensor, entry);
    outputs.push_back(movable_list(gather_list));
  } else {
    check_list_size("gather", "gather_list", gather_list.size(), 0, " on ranks other than dst");
  }
  Tensors inputs{movable(tensor)};
  const CallContext call(site, &tensor);
  return finish(entry.handle->gather(outputs, inputs, options), async_op, "gather");
}
}  // namespace

Work gather(const at::Tensor& tensor, Tensors& gather_list, int dst, const Group& group, bool async_op) {
  return gather_from(LOCKSTEP_CALL_SITE, tensor, gather_list, dst, group, async_op, false);
}

Tensors gather(const at::Tensor& tensor, int dst, const Group& group) {
  Tensors list;
  gather_from(LOCKSTEP_CALL_SITE, tensor, list, dst, group, false, true);
  return list;
}

Work scatter(const at::Tensor& tensor, const Tensors& scatter_list, int src, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("scatter", group);
  check_tensor("scatter", "tensor", tensor, entry);
  c10d::ScatterOptions options;
  options.rootRank = require_rank("scatter", "src", src, entry);
  options.asyncOp = async_op;
  TensorLists inputs;
  if (this_rank_is(static_cast<int>(options.rootRank), entry)) {
    check_list_size("scatter", "scatter_list", scatter_list.size(), size_of(entry),
                    " on src, one for each rank of the group");
    for (size_t i = 0; i < scatter_list.size(); ++i) {
      check_tensor("scatter", element("scatter_list", i), scatter_list[i], entry);
      check_like("scatter", element("scatter_list", i), scatter_list[i], "tensor", tensor);
    }
    inputs.push_back(movable_list(scatter_list));
  } else {
    check_list_size("scatter", "scatter_list", scatter_list.size(), 0, " on ranks other than src");
  }
  Tensors outputs{movable(tensor)};
  const CallContext call(LOCKSTEP_CALL_SITE, &tensor);
  return finish(entry.handle->scatter(outputs, inputs, options), async_op, "scatter");
}

Work all_to_all(const Tensors& output_list, const Tensors& input_list, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("all_to_all", group);
  for (const auto& [name, list] : {std::pair{"output_list", &output_list}, std::pair{"input_list", &input_list}}) {
    check_list_size("all_to_all", name, list->size(), size_of(entry), ", one for each rank of the group");
    for (size_t i = 0; i < list->size(); ++i) {
      check_tensor("all_to_all", element(name, i), (*list)[i], entry);
      if ((*list)[i].scalar_type() != input_list[0].scalar_type())
        throw ArgumentError(fmt::format("dist::all_to_all: {} is {}, but input_list[0] is {}; all must have one dtype",
                                        element(name, i), c10::toString((*list)[i].scalar_type()),
                                        c10::toString(input_list[0].scalar_type())));
    }
  }
  c10d::AllToAllOptions options;
  options.asyncOp = async_op;
  Tensors outputs = movable_list(output_list), inputs = movable_list(input_list);
  const CallContext call(LOCKSTEP_CALL_SITE, &input_list[0]);
  return finish(entry.handle->alltoall(outputs, inputs, options), async_op, "all_to_all");
}

namespace {
void check_splits(const char* name, const at::Tensor& tensor, const std::vector<int64_t>& splits, size_t size) {
  const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 0;
  if (splits.empty()) {
    if (tensor.dim() > 0 && rows % static_cast<int64_t>(size) == 0) return;
    throw ArgumentError(
        fmt::format("dist::all_to_all_single: {} has {} rows, which {} ranks can't share evenly; give the split "
                    "sizes",
                    name, rows, size));
  }
  check_list_size("all_to_all_single", fmt::format("the split sizes of {}", name).c_str(), splits.size(), size,
                  ", one for each rank of the group");
  int64_t sum = 0;
  bool negative = false;
  for (const int64_t split : splits) {
    sum += split;
    negative |= split < 0;
  }
  if (negative || sum != rows)
    throw ArgumentError(fmt::format("dist::all_to_all_single: the split sizes of {} add up to {}, but it has {} rows",
                                    name, sum, rows));
}
}  // namespace

Work all_to_all_single(const at::Tensor& output, const at::Tensor& input, std::vector<int64_t> output_split_sizes,
                       std::vector<int64_t> input_split_sizes, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("all_to_all_single", group);
  check_tensor("all_to_all_single", "output", output, entry);
  check_tensor("all_to_all_single", "input", input, entry);
  if (output.scalar_type() != input.scalar_type())
    throw ArgumentError("dist::all_to_all_single: output and input must have one dtype");
  check_splits("output", output, output_split_sizes, size_of(entry));
  check_splits("input", input, input_split_sizes, size_of(entry));
  c10d::AllToAllOptions options;
  options.asyncOp = async_op;
  at::Tensor received = movable(output), sent = movable(input);
  // A view as bytes of one dimension has other rows than the tensor.
  const auto scale = [](std::vector<int64_t>& splits, const at::Tensor& tensor, const at::Tensor& view) {
    if (view.size(0) != tensor.size(0) && tensor.size(0) > 0)
      for (int64_t& split : splits) split *= view.size(0) / tensor.size(0);
  };
  scale(output_split_sizes, output, received);
  scale(input_split_sizes, input, sent);
  const CallContext call(LOCKSTEP_CALL_SITE, &input);
  return finish(
      version::all_to_all_single(*entry.handle, received, sent, output_split_sizes, input_split_sizes, options),
      async_op, "all_to_all_single");
}

// The two barriers go to the backend itself: ProcessGroup::barrier keeps a tensor in a static variable, which ranks that are
// threads of one process would share.
Work barrier(const Group& group, bool async_op) {
  const GroupEntry entry = require_member("barrier", group);
  c10d::BarrierOptions options;
  options.asyncOp = async_op;
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(entry.backend->barrier(options), async_op, "barrier");
}

void monitored_barrier(const Group& group, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  const GroupEntry entry = require_member("monitored_barrier", group);
  if (entry.group->identity().backend != "gloo")
    throw ArgumentError(fmt::format("dist::monitored_barrier: the backend {} has none, gloo has; use dist::barrier",
                                    entry.group->identity().backend));
  c10d::BarrierOptions options;
  options.timeout = timeout;
  const CallContext call(LOCKSTEP_CALL_SITE);
  entry.backend->monitoredBarrier(options, wait_all_ranks);
}

}  // namespace lockstep::dist
