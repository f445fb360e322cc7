#include "collectives/watch/call_checks.h"

#include <fmt/format.h>

#include "collectives/watch/spelling.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

void CallChecks::tensor(const std::string& name, const at::Tensor& tensor, Use use) const {
  check_tensor(function_, name, tensor, group_, use);
}

void CallChecks::list(const std::string& name, const Tensors& tensors, Use use) const {
  if (tensors.empty()) throw ArgumentError(fmt::format("{}: {} is empty", dist_name(function_), name));
  for (size_t i = 0; i < tensors.size(); ++i) tensor(element(name, i), tensors[i], use);
}

void CallChecks::list_of_ranks(const std::string& name, const Tensors& tensors, Use use, const std::string& like_name,
                               const at::Tensor& like) const {
  size_of_group(name, tensors.size());
  list(name, tensors, use);
  all_like(name, tensors, like_name, like);
  if (use == Use::write) distinct(name, tensors);
}

void CallChecks::one(const std::string& name, size_t size) const { this->size(name, size, 1, ""); }

void CallChecks::one_on_root(const std::string& name, size_t size, bool is_root) const {
  this->size(name, size, is_root ? 1 : 0, is_root ? "" : " on ranks but the root");
}

void CallChecks::size(const std::string& name, size_t size, size_t expected, const char* meaning) const {
  check_list_size(function_, name, size, expected, meaning);
}

void CallChecks::size_of_group(const std::string& name, size_t size, const char* meaning) const {
  this->size(name, size, group_.ranks.size(), meaning);
}

void CallChecks::all_like(const std::string& name, const Tensors& tensors, const std::string& like_name,
                          const at::Tensor& like) const {
  for (size_t i = 0; i < tensors.size(); ++i) check_like(function_, element(name, i), tensors[i], like_name, like);
}

void CallChecks::same_dtype(const std::string& name, const Tensors& tensors, const at::Tensor& like) const {
  for (size_t i = 0; i < tensors.size(); ++i) check_dtype(function_, element(name, i), tensors[i], "the first", like);
}

void CallChecks::stacked(const std::string& name, const at::Tensor& stacked, const std::string& part_name,
                         const at::Tensor& part) const {
  check_stacked(function_, name, stacked, part_name, part, group_);
}

void CallChecks::all_stacked(const std::string& name, const Tensors& stacked, const std::string& part_name,
                             const Tensors& parts) const {
  for (size_t i = 0; i < parts.size(); ++i)
    this->stacked(element(name, i), stacked[i], element(part_name, i), parts[i]);
}

void CallChecks::reduction(const at::Tensor& tensor, const c10d::ReduceOp& op) const {
  check_reduction(function_, tensor, op, group_);
}

void CallChecks::distinct(const std::string& name, const Tensors& tensors) const {
  check_distinct(function_, name, tensors);
}

void CallChecks::splits(const std::string& name, const at::Tensor& tensor, const std::vector<int64_t>& splits) const {
  check_splits(function_, name, tensor, splits, group_.ranks.size());
}

}  // namespace lockstep::dist
