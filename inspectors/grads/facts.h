// The facts that ranks exchange about their gradients: first about the inspected object, then about each gradient.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/grads/watch.h"
#include "inspectors/subject/gradients.h"
#include "protocol/json_fields.h"

namespace lockstep::inspect {

/// These facts are exchanged first.
struct GradsFacts {
  Hash structure{};  // of the parameters: names, dtypes, shapes
  bool out_of_data = false;  // in join()
  bool last_forward_was_local = false;  // it ran under no_sync
};

/// Describes one gradient at one moment.
struct GradFacts {
  bool present = false;
  Fingerprint mark;
  Sketch sketch{};
  bool zero() const { return present && mark.abs_max == 0 && mark.nan_count + mark.inf_count == 0; }
};

/// Describes one parameter on one rank.
struct ParameterFacts {
  GradFacts now;
  GradFacts
      before;  // before the reduction: as observed after the last backward, or as the program has changed it since
  int64_t same_for = 0;  // as in ObservedGradient
  bool stepped = false;
  bool on_used = false;  // backward added it to a gradient that an optimizer had used
  bool changed = false;  // since backward, before any collective: `before` is the current gradient
};

// They are arrays in JSON, since there are many.
void to_json(nlohmann::json& json, const ParameterFacts& facts);
void from_json(const nlohmann::json& json, ParameterFacts& facts);

/// Describes one rank.
struct RankFacts {
  bool watched = false;  // what follows is known
  int64_t steps = 0;  // that were observed
  bool sync_wanted = true;
  int64_t passes = 0;  // backward passes of the last step
  std::string older;  // older_definitions() of the subject, if it lacks gradients
  std::vector<ParameterFacts> parameters;  // those that all ranks have
};

/// `indices` are of the parameters of `subject` that all ranks have. Local.
RankFacts facts_of(const GradientSubject& subject, const std::vector<size_t>& indices);

LOCKSTEP_JSON(GradsFacts, structure, out_of_data, last_forward_was_local)
LOCKSTEP_JSON(RankFacts, watched, steps, sync_wanted, passes, older, parameters)

}  // namespace lockstep::inspect
