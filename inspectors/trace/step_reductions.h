// Reads the collectives with which a step synchronises from the collective log, and runs them again without other work.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "inspectors/trace/steps.h"

namespace lockstep::inspect {

struct StepReduction {
  std::string op, dtype;
  std::vector<int64_t> shape;
  int root = -1;  // rank of the default group
  int64_t bytes = 0;
  bool on_device = false;
  bool operator==(const StepReduction&) const = default;
};

/// Returns the number of collectives in the program's log so far.
uint64_t collectives_so_far();
/// Adds those of process groups of which the log has nothing; set_other_collectives says how to count them.
uint64_t collectives_begun();
/// `count` returns the number of such collectives that this process has begun so far. Called once, at the program's
/// start; null: there are none.
void set_other_collectives(uint64_t (*count)());
/// Returns the all_reduces and broadcasts of `group` that began after the first `count` collectives. Local.
std::vector<StepReduction> reductions_since(uint64_t count, const StepGroup& group);
/// Returns the elements of `all` that are not in `without`, in order.
std::vector<StepReduction> beyond(std::vector<StepReduction> all, const std::vector<StepReduction>& without);

/// Has buffers for reductions, on the current device where the step's were on one. run() begins all of them and then
/// waits for all, as a Reducer does. Collective over `group`.
class ReductionsAlone {
 public:
  ReductionsAlone(const std::vector<StepReduction>& reductions, const StepGroup& group);
  void run() const;

 private:
  const std::vector<StepReduction>& reductions_;
  const StepGroup& group_;
  std::vector<at::Tensor> buffers_;
};

}  // namespace lockstep::inspect
