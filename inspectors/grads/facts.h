// What one rank tells the others of its gradients: what it inspects first, then a few numbers for each gradient.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/grads/watch.h"
#include "inspectors/subject/gradients.h"

namespace lockstep::inspect {

/// First: whether there is something to compare.
struct GradsFacts {
  Hash structure{};  // of the parameters: names, dtypes, shapes
  bool out_of_data = false;  // in join()
  bool last_forward_was_local = false;  // it ran under no_sync
};

/// Of one gradient at one time.
struct GradFacts {
  bool present = false;
  Fingerprint mark;
  Sketch sketch{};
  bool zero() const { return present && mark.abs_max == 0 && mark.nan_count + mark.inf_count == 0; }
};

/// Of one parameter on one rank.
struct ParameterFacts {
  GradFacts now;
  GradFacts before;  // the reduction: as an observer saw it in the last step, or what the program has made of it since
  int64_t same_for = 0;
  bool stepped = false;
  bool on_used = false;  // backward added it to a gradient that an optimizer had used
  bool changed = false;  // since backward, and before any collective: `before` is what is there now
};

/// Of one rank.
struct RankFacts {
  bool watched = false;
  int64_t steps = 0;  // that the observer saw
  bool sync_wanted = true;
  int64_t passes = 0;  // backward passes of the last step, where it is watched
  std::string older;  // older_definitions() of the subject, where it lacks gradients
  std::vector<ParameterFacts> parameters;  // those that ranks have in common
};

/// Of `subject`'s parameters at `places`. Local.
RankFacts facts_of(const GradientSubject& subject, const std::vector<size_t>& places);

void to_json(nlohmann::json& json, const GradsFacts& facts);
void from_json(const nlohmann::json& json, GradsFacts& facts);
void to_json(nlohmann::json& json, const RankFacts& facts);
void from_json(const nlohmann::json& json, RankFacts& facts);

}  // namespace lockstep::inspect
