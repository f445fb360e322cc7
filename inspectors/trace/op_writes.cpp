#include "inspectors/trace/op_writes.h"

#include <algorithm>
#include <array>

namespace lockstep::inspect {

bool overwrites_target(std::string_view name) {
  // Not `mul_` by zero, `masked_fill_` or `addmm_` with beta = 0: what they read is a matter of their arguments.
  constexpr std::array<std::string_view, 16> kNames = {
      "zero_",          "fill_",          "copy_",        "copy_sparse_to_sparse_",
      "_foreach_zero_", "_foreach_copy_", "uniform_",     "normal_",
      "log_normal_",    "random_",        "bernoulli_",   "cauchy_",
      "geometric_",     "set_",           "exponential_", "_fill_mem_eff_dropout_mask_"};
  return std::ranges::find(kNames, name) != kNames.end();
}

bool overwrites(const RunningOp& op, size_t argument) {
  if (argument == 0 && overwrites_target(op.name)) return true;
  const auto handle = op.handle();
  return handle && argument < handle->schema().arguments().size() && handle->schema().arguments()[argument].is_out();
}

bool writes_in_place(const RunningOp& op) {
  const auto handle = op.handle();
  if (handle && handle->hasTag(at::Tag::inplace_view)) return false;
  // The schemas of c10d's operators do not say what they write. `__and__` writes nothing.
  if (op.name.ends_with('_') && !op.name.ends_with("__")) return true;
  return handle && std::ranges::any_of(handle->schema().returns(), [](const c10::Argument& each) {
           return each.alias_info() && each.alias_info()->isWrite();
         });
}

bool leaves_memory_unset(std::string_view name) {
  for (const std::string_view begin : {"empty", "new_empty", "_empty"})
    if (name.starts_with(begin)) return true;
  return name == "resize_" || name == "resize_as_" || name == "_resize_output_";
}

bool updates_statistic(std::string_view name, size_t argument) {
  return (argument == 3 || argument == 4) && (name.ends_with("batch_norm") || name.ends_with("instance_norm"));
}

}  // namespace lockstep::inspect
