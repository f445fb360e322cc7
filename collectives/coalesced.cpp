// Collectives of several tensors at once.
#include <fmt/format.h>

#include "collectives/dist.h"
#include "collectives/finish.h"
#include "collectives/group_arguments.h"
#include "collectives/watch/arguments.h"
#include "collectives/watch/call_context.h"

namespace lockstep::dist {

namespace {
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

/// Checks that there is one tensor or more, all of one dtype.
void check_tensors(const char* function, const std::string& name, const Tensors& tensors, const GroupEntry& entry,
                   Use use) {
  if (tensors.empty())
    throw ArgumentError(fmt::format("dist::{}: {} is empty; it needs one tensor or more", function, name));
  for (size_t i = 0; i < tensors.size(); ++i) {
    check_tensor(function, element(name, i), tensors[i], entry.group->identity(), use);
    check_dtype(function, element(name, i), tensors[i], element(name, 0), tensors[0]);
  }
  if (use != Use::read) check_distinct(function, name, tensors);
}
}  // namespace

Work all_reduce_coalesced(const Tensors& tensors, const ReduceOp& op, const Group& group, bool async_op) {
  constexpr const char* function = "all_reduce_coalesced";
  const GroupEntry entry = require_member(function, group);
  check_tensors(function, "tensors", tensors, entry, Use::update);
  check_reduction(function, tensors[0], op, entry.group->identity());
  c10d::AllreduceCoalescedOptions options;
  options.reduceOp = op;
  options.asyncOp = async_op;
  Tensors passed = tensors;
  const CallContext call(__builtin_return_address(0));
  return finish(entry.handle->allreduce_coalesced(passed, options), async_op, function);
}

Work all_gather_coalesced(const TensorLists& output_tensor_lists, const Tensors& input_tensor_list, const Group& group,
                          bool async_op) {
  constexpr const char* function = "all_gather_coalesced";
  const GroupEntry entry = require_member(function, group);
  check_tensors(function, "input_tensor_list", input_tensor_list, entry, Use::read);
  check_list_size(function, "output_tensor_lists", output_tensor_lists.size(), entry.group->identity().ranks.size(),
                  ", one list for each rank of the group");
  Tensors all;
  for (size_t r = 0; r < output_tensor_lists.size(); ++r) {
    const std::string name = element("output_tensor_lists", r);
    const Tensors& list = output_tensor_lists[r];
    check_list_size(function, name, list.size(), input_tensor_list.size(), ", as many as input_tensor_list");
    check_tensors(function, name, list, entry, Use::write);
    for (size_t i = 0; i < list.size(); ++i)
      check_like(function, element(name, i), list[i], element("input_tensor_list", i), input_tensor_list[i]);
    all.insert(all.end(), list.begin(), list.end());
  }
  check_distinct(function, "output_tensor_lists, one after the other,", all);
  c10d::AllgatherOptions options;
  options.asyncOp = async_op;
  TensorLists outputs = output_tensor_lists;
  Tensors inputs = input_tensor_list;
  const CallContext call(__builtin_return_address(0));
  return finish(entry.handle->allgather_coalesced(outputs, inputs, options), async_op, function);
}

Work all_gather_into_tensor_coalesced(const Tensors& outputs, const Tensors& inputs, const Group& group,
                                      bool async_op) {
  constexpr const char* function = "all_gather_into_tensor_coalesced";
  const GroupEntry entry = require_member(function, group);
  check_list_size(function, "outputs", outputs.size(), inputs.size(), ", as many as inputs");
  check_tensors(function, "inputs", inputs, entry, Use::read);
  check_tensors(function, "outputs", outputs, entry, Use::write);
  for (size_t i = 0; i < inputs.size(); ++i)
    check_stacked(function, element("outputs", i), outputs[i], element("inputs", i), inputs[i],
                  entry.group->identity());
  c10d::AllgatherOptions options;
  options.asyncOp = async_op;
  Tensors written = outputs, read = inputs;
  const CallContext call(__builtin_return_address(0));
  return finish(entry.handle->allgather_into_tensor_coalesced(written, read, options), async_op, function);
}

Work reduce_scatter_tensor_coalesced(const Tensors& outputs, const Tensors& inputs, const ReduceOp& op,
                                     const Group& group, bool async_op) {
  constexpr const char* function = "reduce_scatter_tensor_coalesced";
  const GroupEntry entry = require_member(function, group);
  check_list_size(function, "outputs", outputs.size(), inputs.size(), ", as many as inputs");
  check_tensors(function, "inputs", inputs, entry, Use::read);
  check_tensors(function, "outputs", outputs, entry, Use::write);
  for (size_t i = 0; i < inputs.size(); ++i)
    check_stacked(function, element("inputs", i), inputs[i], element("outputs", i), outputs[i],
                  entry.group->identity());
  check_reduction(function, inputs[0], op, entry.group->identity());
  c10d::ReduceScatterOptions options;
  options.reduceOp = op;
  options.asyncOp = async_op;
  Tensors written = outputs, read = inputs;
  const CallContext call(__builtin_return_address(0));
  return finish(entry.handle->reduce_scatter_tensor_coalesced(written, read, options), async_op, function);
}

}  // namespace lockstep::dist
