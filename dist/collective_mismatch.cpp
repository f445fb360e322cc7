#include "dist/collective_mismatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace lockstep::dist {

namespace {
struct Camp {
  RankSet ranks;
  CollectiveRecord record;
};

std::string named(const RankSet& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ranks.str());
}

std::string verdict_of(const CollectiveRecord& a, const CollectiveRecord& b) {
  if (a.op != b.op) return "op_mismatch";
  if (a.dtype != b.dtype) return "dtype_mismatch";
  if (a.shape != b.shape || a.tensor_count != b.tensor_count) return "shape_mismatch";
  if (a.root != b.root || a.reduce_op != b.reduce_op) return "op_mismatch";
  return "shape_mismatch";  // split sizes, or tensors after the first
}
}  // namespace

CollectiveMismatch make_mismatch(const std::string& group, int64_t seq, const std::map<int, CollectiveRecord>& called,
                                 const RankSet& missing) {
  std::vector<Camp> camps;
  for (const auto& [rank, record] : called) {
    const auto same = [&](const Camp& camp) { return describe(camp.record) == describe(record); };
    auto camp = std::find_if(camps.begin(), camps.end(), same);
    if (camp == camps.end()) camp = camps.insert(camps.end(), Camp{{}, record});
    camp->ranks.insert(rank);
  }
  // The smallest camp first: it is the one to look at.
  std::stable_sort(camps.begin(), camps.end(),
                   [](const Camp& a, const Camp& b) { return a.ranks.size() < b.ranks.size(); });
  const Camp& largest = camps.back();
  const bool majority = camps.size() > 1 && 2 * largest.ranks.size() > called.size() + missing.size();

  std::string text;
  for (const Camp& camp : camps) {
    text += text.empty()
                ? fmt::format("{} called {} as #{} of group {}", named(camp.ranks), describe(camp.record), seq, group)
                : fmt::format(", {} {}", named(camp.ranks), describe(camp.record));
  }
  if (camps.size() == 1) text += ", with sizes that do not fit together";
  if (!missing.empty()) text += fmt::format(" ({} had not come to #{})", named(missing), seq);
  text +=
      ". All ranks of a group must make the same calls in the same order, with the same dtype, shape, root and reduce "
      "operation";

  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "collectives";
  finding.verdict = camps.size() == 1 ? "shape_mismatch" : verdict_of(camps.front().record, largest.record);
  for (const Camp& camp : camps)
    if (!majority || &camp != &largest) finding.ranks = finding.ranks | camp.ranks;
  if (majority) finding.reference_ranks = largest.ranks;
  finding.op = to_finding_op(largest.record);
  finding.op->seq = seq;
  finding.op->group = group;
  finding.message = text;
  return CollectiveMismatch(text, finding);
}

}  // namespace lockstep::dist
