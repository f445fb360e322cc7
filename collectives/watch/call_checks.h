// Checks the arguments of a collective that a program calls on c10d itself, under c10d's names for them. Calls through
// dist:: have been checked before, under the names that dist:: gives them.
#pragma once
#include <string>
#include <vector>

#include "collectives/log/collective_op.h"
#include "collectives/watch/arguments.h"

namespace lockstep::dist {

/// Every check throws ArgumentError with the name of the collective and of the argument.
class CallChecks {
 public:
  using Tensors = std::vector<at::Tensor>;

  CallChecks(CollectiveOp op, const WatchedGroup::Identity& group) : function_(op_name(op)), group_(group) {}

  void tensor(const std::string& name, const at::Tensor& tensor, Use use) const;
  /// Checks that there is at least one tensor, and each tensor.
  void list(const std::string& name, const Tensors& tensors, Use use) const;
  /// Checks a list with a tensor for each rank of the group, each with the dtype and shape of `like`.
  void list_of_ranks(const std::string& name, const Tensors& tensors, Use use, const std::string& like_name,
                     const at::Tensor& like) const;
  /// Checks that a list has one element.
  void one(const std::string& name, size_t size) const;
  /// Checks outer lists of gather and scatter: one element on the root, none elsewhere.
  void one_on_root(const std::string& name, size_t size, bool is_root) const;
  void size(const std::string& name, size_t size, size_t expected, const char* meaning) const;
  void size_of_group(const std::string& name, size_t size,
                     const char* meaning = ", one for each rank of the group") const;
  void all_like(const std::string& name, const Tensors& tensors, const std::string& like_name,
                const at::Tensor& like) const;
  void same_dtype(const std::string& name, const Tensors& tensors, const at::Tensor& like) const;
  void stacked(const std::string& name, const at::Tensor& stacked, const std::string& part_name,
               const at::Tensor& part) const;
  /// Calls stacked() for the elements of two lists.
  void all_stacked(const std::string& name, const Tensors& stacked, const std::string& part_name,
                   const Tensors& parts) const;
  void reduction(const at::Tensor& tensor, const c10d::ReduceOp& op) const;
  void distinct(const std::string& name, const Tensors& tensors) const;
  void splits(const std::string& name, const at::Tensor& tensor, const std::vector<int64_t>& splits) const;

 private:
  const char* const function_;
  const WatchedGroup::Identity& group_;
};

}  // namespace lockstep::dist
