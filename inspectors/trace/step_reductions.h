// The collectives with which a step synchronises, read from the collective log, and run again without other work.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/dist.h"

namespace lockstep::inspect {

struct StepReduction {
  std::string op, dtype;
  std::vector<int64_t> shape;
  int root = -1;
  int64_t bytes = 0;
  bool operator==(const StepReduction&) const = default;
};

/// The number of collectives in the log of this rank so far.
uint64_t collectives_so_far();
/// The same with those of process groups that dist:: did not make, of which the log has nothing; set_other_collectives
/// says how to count them.
uint64_t collectives_begun();
/// `count`: the number of such collectives that this process has begun so far. To be called once, at the program's
/// start; null: there are none.
void set_other_collectives(uint64_t (*count)());
/// The all_reduces and broadcasts of `group` that began after the first `count` collectives. Local.
std::vector<StepReduction> reductions_since(uint64_t count, const dist::Group& group);
/// The elements of `all` that are not in `without`, in order.
std::vector<StepReduction> beyond(std::vector<StepReduction> all, const std::vector<StepReduction>& without);

/// Buffers for reductions. run() begins all of them and then waits for all, as a Reducer does. Collective over `group`.
class ReductionsAlone {
 public:
  ReductionsAlone(const std::vector<StepReduction>& reductions, dist::Group group);
  void run() const;

 private:
  const std::vector<StepReduction>& reductions_;
  dist::Group group_;
  std::vector<at::Tensor> buffers_;
};

}  // namespace lockstep::inspect
