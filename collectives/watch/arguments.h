// Checks arguments before anything is sent: dist:: under the names of its own, and the watched backend for programs
// that call c10d itself. Every error names the function, the argument, and what to do.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "collectives/watch/watched_group.h"

namespace lockstep::dist {

/// Says what a collective does with a tensor.
enum class Use { read, write, update };

/// Checks that it is defined, dense, with memory, and on a device that the group's backend takes. What is written to
/// must not have one element in several places (expand).
void check_tensor(const char* function, const std::string& name, const at::Tensor& tensor,
                  const WatchedGroup::Identity& group, Use use);

/// Checks that it is a sparse tensor that the backend can sum.
void check_sparse(const char* function, const std::string& name, const at::Tensor& tensor, const c10d::ReduceOp& op,
                  const WatchedGroup::Identity& group);

/// Checks that it has the dtype and shape of `like`.
void check_like(const char* function, const std::string& name, const at::Tensor& tensor, const std::string& like_name,
                const at::Tensor& like);
/// Checks that it has the dtype of `like`.
void check_dtype(const char* function, const std::string& name, const at::Tensor& tensor, const std::string& like_name,
                 const at::Tensor& like);

/// Checks that `stacked` holds one tensor like `part` for each rank: that many elements, of the same dtype.
void check_stacked(const char* function, const std::string& name, const at::Tensor& stacked,
                   const std::string& part_name, const at::Tensor& part, const WatchedGroup::Identity& group);

void check_list_size(const char* function, const std::string& name, size_t size, size_t expected, const char* meaning);

/// Checks that what is written to shares no memory: std::vector<Tensor>(n, t) holds one tensor n times.
void check_distinct(const char* function, const std::string& name, const std::vector<at::Tensor>& list);

/// Checks that the backend can reduce tensors of this dtype by `op`. Throws ArgumentError.
void check_reduction(const char* function, const at::Tensor& tensor, const c10d::ReduceOp& op,
                     const WatchedGroup::Identity& group);

/// Checks the split sizes of all_to_all_single: one for each rank, which add up to the rows; or none, and rows that
/// ranks can share.
void check_splits(const char* function, const std::string& name, const at::Tensor& tensor,
                  const std::vector<int64_t>& splits, size_t size);

/// Checks a tag of send and recv, which is not negative.
void check_tag(const char* function, int tag);

/// Checks a time limit, which is not negative.
void check_limit(const char* function, const char* name, std::chrono::milliseconds limit);

/// Returns "tensor_list[1]".
std::string element(const std::string& list, size_t index);

}  // namespace lockstep::dist
