// The collectives that a step makes in order to synchronise, read from the collective log, and run again by themselves.
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

/// Collectives begun on this rank so far.
uint64_t collectives_so_far();
/// The reductions and broadcasts of `group` begun since that many. Local.
std::vector<StepReduction> reductions_since(uint64_t count, const dist::Group& group);
/// Those of `all` that are not in `without`, in order.
std::vector<StepReduction> beyond(std::vector<StepReduction> all, const std::vector<StepReduction>& without);

/// Buffers for them, and one run: all are begun, then all are waited for, as a Reducer does. Collective over `group`.
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
