// What ranks have made of a step: how many backward passes they accumulated, and whether what trains holds these
// objects at all.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "inspectors/grads/findings.h"

namespace lockstep::inspect {

void GradsFindings::micro_batches() {
  if (wrapper_.uneven) return;
  std::map<int64_t, RankSet, std::greater<>> by_passes;
  for (size_t r = 0; r < facts_.size(); ++r) {
    if (!facts_[r].watched || facts_[r].passes == 0 || facts_[r].steps != facts_[0].steps) return;
    by_passes[facts_[r].passes].insert(ranks_.ranks()[r]);
  }
  if (by_passes.size() < 2) return;
  RankSet unlike = ranks_;
  std::string text;
  for (const auto& [passes, ranks] : by_passes) {
    if (2 * ranks.size() > ranks_.size()) unlike = ranks_ - ranks;
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", passes, ranks.words());
  }
  Finding found = finding(Severity::note, "uneven_data", "micro_batch", unlike);
  if (unlike != ranks_) found.reference_ranks = ranks_ - unlike;
  found.message = fmt::format(
      "backward passes since the last step: {}. Where a loss is divided by the number of them, or by the batch, "
      "samples of "
      "ranks with more count otherwise than those of the others: divide by what all ranks have",
      text);
  findings_.push_back(std::move(found));
}

std::string GradsFindings::older_objects() const {
  for (const RankFacts& each : facts_)
    if (!each.older.empty()) return each.older;
  return {};
}

}  // namespace lockstep::inspect
