// What dist:: checks before anything is sent. Every error names the function, the argument and the mend.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "dist/rank_context.h"

namespace lockstep::dist {

/// The group of a collective: this rank must be in it.
GroupEntry require_member(const char* function, const Group& group);

/// Group rank of `rank` (of the default group). `name`: "src" or "dst".
int require_rank(const char* function, const char* name, int rank, const GroupEntry& entry);

/// Defined, dense, contiguous, with data, on a device that the group's backend takes.
void check_tensor(const char* function, const std::string& name, const at::Tensor& tensor, const GroupEntry& entry);

/// The same dtype and number of elements as `like`.
void check_like(const char* function, const std::string& name, const at::Tensor& tensor, const std::string& like_name,
                const at::Tensor& like);

void check_list_size(const char* function, const char* name, size_t size, size_t expected, const char* meaning);

/// What is given to a reduction: the tensor, or a real view of a complex one. Throws ArgumentError for dtypes and operations that
/// the backend can't reduce.
at::Tensor reducible(const char* function, const at::Tensor& tensor, const ReduceOp& op, const GroupEntry& entry);

/// What is given to an operation that only moves data: a view in a dtype that every backend knows.
at::Tensor movable(const at::Tensor& tensor);

}  // namespace lockstep::dist
