// Reductions of integers, and whether they ran over: what the ranks brought adds up to what came out, unless an element
// was larger than its type can hold and began again from the other end. Sums are all that is kept: no rank needs
// another's tensor.
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

/// One all_reduce or reduce with SUM, as this rank saw it.
struct IntegerReduction {
  dist::CollectiveRecord call;
  CallSite site;
  int64_t brought = 0;  // sum of the elements before
  std::optional<int64_t> came_out;  // the same afterwards; unset where nobody could look before it was overwritten
  int64_t largest = 0;  // magnitude of an element before
};

class IntegerReductions {
 public:
  /// A collective begins on this rank with `tensor`, which the operator `entry` of the record writes. Integers of up to
  /// 32 bits.
  void begins(int32_t entry, const std::string& op, const at::Tensor& tensor, const CallSite& site);
  /// It has been handed to the group; `call` is what the log has of it.
  void began(int32_t entry, const std::optional<dist::CollectiveRecord>& call);
  /// What it left has not been touched yet, and will be.
  void look(int32_t entry);
  /// Looks at all that are left. Those that are under way are left out.
  void end();

  const std::vector<IntegerReduction>& all() const { return all_; }

 private:
  struct Open {
    int32_t entry;
    size_t place;
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor;
  };
  std::vector<IntegerReduction> all_;
  std::vector<Open> open_;
};

/// Whether an element of `largest` may run over in a sum over `ranks` ranks.
bool may_run_over(const IntegerReduction& reduction, size_t ranks);
/// What integers of that name (dist::dtype_name) wrap around at: 256 for "uint8". 0 for others.
int64_t modulus_of(const std::string& dtype);
/// The largest that one can hold.
int64_t largest_of(const std::string& dtype);

}  // namespace lockstep::inspect
