// Keeps reductions of integers, for finding overflows: the inputs of all ranks add up to the result unless an element
// overflowed its type and wrapped around. Only sums of elements are kept, so no rank needs the tensor of another.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/collective_record.h"
#include "inspectors/trace/call_site.h"

namespace lockstep::inspect {

/// One all_reduce or reduce with SUM on this rank.
struct IntegerReduction {
  dist::CollectiveRecord call;
  CallSite site;
  int64_t input_sum = 0;  // of the elements before
  std::optional<int64_t> output_sum;  // of the elements after; unset if they were overwritten before they could be read
  int64_t largest = 0;  // largest magnitude of an element before
};

class IntegerReductions {
 public:
  /// Notes that a collective begins on this rank with `tensor`, which the operator `entry` of the record writes.
  /// Ignored unless these are integers of up to 32 bits.
  void begins(int32_t entry, const std::string& op, const at::Tensor& tensor, const CallSite& site);
  /// Notes that the group has the collective now; `call` is its record in the log.
  void began(int32_t entry, const std::optional<dist::CollectiveRecord>& call);
  /// Reads the result of the collective, which is about to be used or overwritten.
  void look(int32_t entry);
  /// Reads the results that remain, except those of collectives that are still running.
  void end();

  const std::vector<IntegerReduction>& all() const { return all_; }

 private:
  struct Open {
    int32_t entry;
    size_t index;  // in all_
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor;
  };
  std::vector<IntegerReduction> all_;
  std::vector<Open> open_;
};

/// Whether the sum over `ranks` ranks may overflow, given the largest element of this one.
bool may_overflow(const IntegerReduction& reduction, size_t ranks);
/// Returns the number of values of an integer type (dist::dtype_name): 256 for "uint8". 0 for other types.
int64_t modulus_of(const std::string& dtype);
/// Returns the largest value of the type.
int64_t largest_of(const std::string& dtype);

}  // namespace lockstep::inspect
