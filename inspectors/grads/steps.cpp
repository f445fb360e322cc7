// Judges the numbers of backward passes in a step, and training code that uses other objects than the inspected ones.
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
  RankSet at_fault = ranks_;
  std::string text;
  for (const auto& [passes, ranks] : by_passes) {
    if (2 * ranks.size() > ranks_.size()) at_fault = ranks_ - ranks;
    text += fmt::format("{}{} on {}", text.empty() ? "" : ", ", passes, ranks.words());
  }
  Finding found = finding(Severity::note, Verdict::uneven_data, FindingKind::micro_batch, at_fault);
  found.message = fmt::format(
      "backward passes since the last step: {}. If losses are divided by their number or by the batch, samples of "
      "these "
      "ranks have different weights: divide by the number of samples of all ranks",
      text);
  findings_.push_back(std::move(found));
}

std::string GradsFindings::older_objects() const {
  for (const RankFacts& each : facts_)
    if (!each.older.empty()) return each.older;
  return {};
}

}  // namespace lockstep::inspect
