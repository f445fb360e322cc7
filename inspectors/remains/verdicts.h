// Orders the findings about a job as a reader needs them.
#pragma once
#include <cstdint>
#include <vector>

#include "inspectors/findings/about.h"
#include "protocol/finding.h"

namespace lockstep::inspect::judging {

/// Returns the inspector that the findings are of.
const About& about();

/// Ranks have made findings of this inspector themselves, as in sessions.
inline constexpr const char* kComparison = "collectives";

/// How near to the first cause a finding is; the greatest comes last. `behind`: what the ranks wait for waits itself.
enum class Weight { remark, consequence, behind, stuck, mismatch, exception };

class Verdicts {
 public:
  /// Of findings of equal weight the earliest `time_s` comes last; 0 if unknown.
  void add(Weight weight, Finding finding, int64_t time_s = 0);

  bool has(Weight weight) const;

  /// Whether there is a fault of this kind.
  bool has_fault(FindingKind kind) const;

  /// Returns them, consequences first, the first cause last. Empties this.
  std::vector<Finding> take();

 private:
  struct Weighed {
    Weight weight;
    int64_t time_s;
    Finding finding;
  };
  std::vector<Weighed> found_;
};

}  // namespace lockstep::inspect::judging
