// The collectives of dist:: check arguments under the names that the caller knows, then call c10d's ProcessGroup, whose
// backend is the watched one.
#include "collectives/dist.h"
#include "collectives/finish.h"
#include "collectives/group_arguments.h"
#include "collectives/transport/libtorch_version.h"
#include "collectives/watch/arguments.h"
#include "collectives/watch/call_context.h"

#include <fmt/format.h>

#define LOCKSTEP_CALL_SITE __builtin_return_address(0)

namespace lockstep::dist {

namespace {
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

size_t size_of(const GroupEntry& entry) { return entry.group->identity().ranks.size(); }

bool this_rank_is(int group_rank, const GroupEntry& entry) { return group_rank == entry.group->identity().group_rank; }

// Allocates the elements that are not there; checks the others.
void complete_list(const char* function, const char* name, Tensors& list, const at::Tensor& like,
                   const GroupEntry& entry) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].defined()) list[i] = at::empty(like.sizes(), like.options());
    check_tensor(function, element(name, i), list[i], entry.group->identity(), Use::write);
    check_like(function, element(name, i), list[i], "tensor", like);
  }
  check_distinct(function, name, list);
}

const WatchedGroup::Identity& identity_of(const GroupEntry& entry) { return entry.group->identity(); }
}  // namespace

c10d::ReduceOp::RedOpType ReduceOp::checked(RedOpType op) {
  if (op == PREMUL_SUM)
    throw ArgumentError(
        "dist::ReduceOp: PREMUL_SUM needs its factor, and the backend nccl: c10d::makePreMulSum(factor) (in older "
        "versions of LibTorch makeNCCLPreMulSum). With gloo multiply before, t.mul_(factor), and use SUM");
  return op;
}

Work all_reduce(const at::Tensor& tensor, const ReduceOp& op, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("all_reduce", group);
  Tensors tensors{tensor};
  if (tensor.defined() && tensor.is_sparse()) {
    check_sparse("all_reduce", "tensor", tensor, op, identity_of(entry));
  } else {
    check_tensor("all_reduce", "tensor", tensor, identity_of(entry), Use::update);
    check_reduction("all_reduce", tensor, op, identity_of(entry));
  }
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  options.asyncOp = async_op;
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(entry.handle->allreduce(tensors, options), async_op, "all_reduce");
}

Work broadcast(const at::Tensor& tensor, const Rank& src, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("broadcast", group);
  c10d::BroadcastOptions options;
  options.rootRank = require_rank("broadcast", "src", src, entry);
  options.asyncOp = async_op;
  check_tensor("broadcast", "tensor", tensor, identity_of(entry), Use::update);  // the same on every rank
  Tensors tensors{tensor};
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(entry.handle->broadcast(tensors, options), async_op, "broadcast");
}

Work reduce(const at::Tensor& tensor, const Rank& dst, const ReduceOp& op, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("reduce", group);
  c10d::ReduceOptions options;
  options.reduceOp = op;
  options.rootRank = require_rank("reduce", "dst", dst, entry);
  options.asyncOp = async_op;
  check_tensor("reduce", "tensor", tensor, identity_of(entry), Use::update);
  check_reduction("reduce", tensor, op, identity_of(entry));
  Tensors tensors{tensor};
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(entry.handle->reduce(tensors, options), async_op, "reduce");
}

Work all_gather(Tensors& tensor_list, const at::Tensor& tensor, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("all_gather", group);
  check_tensor("all_gather", "tensor", tensor, identity_of(entry), Use::read);
  check_list_size("all_gather", "tensor_list", tensor_list.size(), size_of(entry),
                  ", one for each rank of the group (all_gather(t) returns the list)");
  complete_list("all_gather", "tensor_list", tensor_list, tensor, entry);
  c10d::AllgatherOptions options;
  options.asyncOp = async_op;
  TensorLists outputs{tensor_list};
  Tensors inputs{tensor};
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(entry.handle->allgather(outputs, inputs, options), async_op, "all_gather");
}

Tensors all_gather(const at::Tensor& tensor, const Group& group) {
  const GroupEntry entry = require_member("all_gather", group);
  check_tensor("all_gather", "tensor", tensor, identity_of(entry), Use::read);
  Tensors list(size_of(entry));
  complete_list("all_gather", "tensor_list", list, tensor, entry);
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  TensorLists outputs{list};
  Tensors inputs{tensor};
  const CallContext call(LOCKSTEP_CALL_SITE);
  finish(entry.handle->allgather(outputs, inputs, options), false, "all_gather");
  return list;
}

Work all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("all_gather_into_tensor", group);
  check_tensor("all_gather_into_tensor", "input", input, identity_of(entry), Use::read);
  check_tensor("all_gather_into_tensor", "output", output, identity_of(entry), Use::write);
  check_stacked("all_gather_into_tensor", "output", output, "input", input, identity_of(entry));
  c10d::AllgatherOptions options;
  options.asyncOp = async_op;
  at::Tensor sent = input, received = output;
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(entry.handle->LOCKSTEP_C10D_ALL_GATHER_SINGLE(received, sent, options), async_op,
                "all_gather_into_tensor");
}

Work reduce_scatter(const at::Tensor& output, const Tensors& input_list, const ReduceOp& op, const Group& group,
                    bool async_op) {
  const GroupEntry entry = require_member("reduce_scatter", group);
  check_tensor("reduce_scatter", "output", output, identity_of(entry), Use::write);
  check_list_size("reduce_scatter", "input_list", input_list.size(), size_of(entry),
                  ", one for each rank of the group");
  for (size_t i = 0; i < input_list.size(); ++i) {
    check_tensor("reduce_scatter", element("input_list", i), input_list[i], identity_of(entry), Use::read);
    check_like("reduce_scatter", element("input_list", i), input_list[i], "output", output);
  }
  check_reduction("reduce_scatter", output, op, identity_of(entry));
  c10d::ReduceScatterOptions options;
  options.reduceOp = op;
  options.asyncOp = async_op;
  Tensors outputs{output};
  TensorLists lists{input_list};
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(entry.handle->reduce_scatter(outputs, lists, options), async_op, "reduce_scatter");
}

Work reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input, const ReduceOp& op, const Group& group,
                           bool async_op) {
  const GroupEntry entry = require_member("reduce_scatter_tensor", group);
  check_tensor("reduce_scatter_tensor", "output", output, identity_of(entry), Use::write);
  check_tensor("reduce_scatter_tensor", "input", input, identity_of(entry), Use::read);
  check_stacked("reduce_scatter_tensor", "input", input, "output", output, identity_of(entry));
  check_reduction("reduce_scatter_tensor", input, op, identity_of(entry));
  c10d::ReduceScatterOptions options;
  options.reduceOp = op;
  options.asyncOp = async_op;
  at::Tensor sent = input, received = output;
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(entry.handle->LOCKSTEP_C10D_REDUCE_SCATTER_SINGLE(received, sent, options), async_op,
                "reduce_scatter_tensor");
}

namespace {
Work gather_from(const void* site, const at::Tensor& tensor, Tensors& gather_list, const Rank& dst, const Group& group,
                 bool async_op, bool allocate) {
  const GroupEntry entry = require_member("gather", group);
  check_tensor("gather", "tensor", tensor, identity_of(entry), Use::read);
  c10d::GatherOptions options;
  options.rootRank = require_rank("gather", "dst", dst, entry);
  options.asyncOp = async_op;
  TensorLists outputs;
  if (this_rank_is(static_cast<int>(options.rootRank), entry)) {
    if (allocate) gather_list.resize(size_of(entry));
    check_list_size("gather", "gather_list", gather_list.size(), size_of(entry),
                    " on dst, one for each rank of the group");
    complete_list("gather", "gather_list", gather_list, tensor, entry);
    outputs.push_back(gather_list);
  } else {
    check_list_size("gather", "gather_list", gather_list.size(), 0, " on ranks other than dst");
  }
  Tensors inputs{tensor};
  const CallContext call(site);
  return finish(entry.handle->gather(outputs, inputs, options), async_op, "gather");
}
}  // namespace

Work gather(const at::Tensor& tensor, Tensors& gather_list, const Rank& dst, const Group& group, bool async_op) {
  return gather_from(LOCKSTEP_CALL_SITE, tensor, gather_list, dst, group, async_op, false);
}

Tensors gather(const at::Tensor& tensor, const Rank& dst, const Group& group) {
  Tensors list;
  gather_from(LOCKSTEP_CALL_SITE, tensor, list, dst, group, false, true);
  return list;
}

Work scatter(const at::Tensor& tensor, const Tensors& scatter_list, const Rank& src, const Group& group,
             bool async_op) {
  const GroupEntry entry = require_member("scatter", group);
  check_tensor("scatter", "tensor", tensor, identity_of(entry), Use::write);
  c10d::ScatterOptions options;
  options.rootRank = require_rank("scatter", "src", src, entry);
  options.asyncOp = async_op;
  TensorLists inputs;
  if (this_rank_is(static_cast<int>(options.rootRank), entry)) {
    check_list_size("scatter", "scatter_list", scatter_list.size(), size_of(entry),
                    " on src, one for each rank of the group");
    for (size_t i = 0; i < scatter_list.size(); ++i) {
      check_tensor("scatter", element("scatter_list", i), scatter_list[i], identity_of(entry), Use::read);
      check_like("scatter", element("scatter_list", i), scatter_list[i], "tensor", tensor);
    }
    inputs.push_back(scatter_list);
  } else {
    check_list_size("scatter", "scatter_list", scatter_list.size(), 0, " on ranks other than src");
  }
  Tensors outputs{tensor};
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(entry.handle->scatter(outputs, inputs, options), async_op, "scatter");
}

Work all_to_all(const Tensors& output_list, const Tensors& input_list, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("all_to_all", group);
  check_list_size("all_to_all", "output_list", output_list.size(), size_of(entry), ", one for each rank of the group");
  check_list_size("all_to_all", "input_list", input_list.size(), size_of(entry), ", one for each rank of the group");
  for (const auto& [name, list, use] :
       {std::tuple{"input_list", &input_list, Use::read}, std::tuple{"output_list", &output_list, Use::write}}) {
    for (size_t i = 0; i < list->size(); ++i) {
      check_tensor("all_to_all", element(name, i), (*list)[i], identity_of(entry), use);
      check_dtype("all_to_all", element(name, i), (*list)[i], "input_list[0]", input_list[0]);
    }
  }
  check_distinct("all_to_all", "output_list", output_list);
  c10d::AllToAllOptions options;
  options.asyncOp = async_op;
  Tensors outputs = output_list, inputs = input_list;
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(entry.handle->alltoall(outputs, inputs, options), async_op, "all_to_all");
}

Work all_to_all_single(const at::Tensor& output, const at::Tensor& input, std::vector<int64_t> output_split_sizes,
                       std::vector<int64_t> input_split_sizes, const Group& group, bool async_op) {
  const GroupEntry entry = require_member("all_to_all_single", group);
  check_tensor("all_to_all_single", "output", output, identity_of(entry), Use::write);
  check_tensor("all_to_all_single", "input", input, identity_of(entry), Use::read);
  check_dtype("all_to_all_single", "output", output, "input", input);
  check_splits("all_to_all_single", "output", output, output_split_sizes, size_of(entry));
  check_splits("all_to_all_single", "input", input, input_split_sizes, size_of(entry));
  c10d::AllToAllOptions options;
  options.asyncOp = async_op;
  at::Tensor received = output, sent = input;
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(
      entry.handle->LOCKSTEP_C10D_ALL_TO_ALL_SINGLE(received, sent, output_split_sizes, input_split_sizes, options),
      async_op, "all_to_all_single");
}

// The two barriers go to the backend itself: ProcessGroup::barrier keeps a tensor in a static variable, which ranks
// that are threads of one process would share.
Work barrier(const Group& group, bool async_op) {
  const GroupEntry entry = require_member("barrier", group);
  c10d::BarrierOptions options;
  options.asyncOp = async_op;
  const CallContext call(LOCKSTEP_CALL_SITE);
  return finish(entry.backend->barrier(options), async_op, "barrier");
}

void monitored_barrier(const Group& group, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  const GroupEntry entry = require_member("monitored_barrier", group);
  // A group with a backend for a device has Gloo beside it.
  if (const BackendConfig& backend = entry.group->identity().backend;
      !backend.device_part() && !backend.parts().front().works_as_gloo())
    throw ArgumentError(
        fmt::format("dist::monitored_barrier: the backend {} has none, gloo has; use dist::barrier", backend.str()));
  check_limit("monitored_barrier", "timeout", timeout);
  c10d::BarrierOptions options;
  options.timeout = timeout;
  const CallContext call(LOCKSTEP_CALL_SITE);
  entry.backend->monitoredBarrier(options, wait_all_ranks);
}

}  // namespace lockstep::dist
