#include "inspectors/remains/verdicts.h"

#include <algorithm>
#include <utility>

namespace lockstep::inspect::judging {

const About& about() {
  static const About about{.inspector = "hang", .object = {}, .step = {}, .ranks = {}, .names = {}};
  return about;
}

void Verdicts::add(Weight weight, Finding finding, int64_t time_s) {
  found_.push_back({weight, time_s, std::move(finding)});
}

bool Verdicts::has(Weight weight) const {
  return std::ranges::any_of(found_, [&](const Weighed& each) { return each.weight == weight; });
}

bool Verdicts::has_fault(FindingKind kind) const {
  return std::ranges::any_of(found_,
                             [&](const Weighed& each) { return is_fault(each.finding) && each.finding.kind == kind; });
}

std::vector<Finding> Verdicts::take() {
  const auto later = [](const Weighed& a, const Weighed& b) {
    if (a.weight != b.weight) return a.weight < b.weight;
    const auto unknown_first = [](int64_t time) { return time == 0 ? INT64_MAX : time; };
    return unknown_first(a.time_s) > unknown_first(b.time_s);
  };
  std::ranges::stable_sort(found_, later);
  std::vector<Finding> findings;
  for (Weighed& each : found_) findings.push_back(std::move(each.finding));
  found_.clear();
  return findings;
}

}  // namespace lockstep::inspect::judging
