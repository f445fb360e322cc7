#include "collectives/log/call_mismatch.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/log/call_order.h"

namespace lockstep::dist {

CollectiveMismatch make_mismatch(const std::string& group, int64_t seq, const std::map<int, CalledHere>& called,
                                 const RankSet& missing, const PlaceOfCall& place_of) {
  std::vector<Camp> camps;
  for (const auto& [rank, call] : called) {
    const auto same = [&](const Camp& camp) { return describe(*camp.call) == describe(call.record); };
    auto camp = std::find_if(camps.begin(), camps.end(), same);
    if (camp == camps.end()) camp = camps.insert(camps.end(), Camp{{}, &call.record, &call.recent});
    camp->ranks.insert(rank);
  }
  // The smallest camp comes first: it is the one to look at.
  std::stable_sort(camps.begin(), camps.end(),
                   [](const Camp& a, const Camp& b) { return a.ranks.size() < b.ranks.size(); });
  const Camp& smallest = camps.front();
  const Camp& largest = camps.back();
  const bool majority = camps.size() > 1 && 2 * largest.ranks.size() > called.size() + missing.size();

  std::string text;
  for (const Camp& camp : camps) {
    text += text.empty()
                ? fmt::format("{} called {} as #{} of group {}", camp.ranks.words(), describe(*camp.call), seq, group)
                : fmt::format(", {} {}", camp.ranks.words(), describe(*camp.call));
    if (const std::string place = place_of(*camp.call); !place.empty()) text += " (" + place + ")";
  }
  if (camps.size() == 1) text += ", with sizes that do not fit together";
  if (!missing.empty()) text += fmt::format(" ({} had not come to #{})", missing.words(), seq);

  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "collectives";
  finding.verdict = Verdict::shape_mismatch;
  if (camps.size() > 1) {
    const CallDifference difference = difference_of(camps, group, seq);
    finding.verdict = difference.verdict;
    text += difference.order_words;
  }
  text +=
      ". All ranks of a group must make the same calls in the same order, with the same dtype, shape, root and reduce "
      "operation";
  for (const Camp& camp : camps)
    if (!majority || &camp != &largest) finding.ranks = finding.ranks | camp.ranks;
  if (majority) finding.reference_ranks = largest.ranks;
  finding.op = to_finding_op(*smallest.call);
  finding.op->seq = seq;
  finding.op->group = group;
  if (const std::string place = place_of(*smallest.call); !place.empty()) finding.where = place;
  finding.message = text;
  return CollectiveMismatch(text, finding);
}

CollectiveMismatch make_message_mismatch(int sender, const CollectiveRecord& sent, int receiver,
                                         const CollectiveRecord& received, const PlaceOfCall& place_of) {
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "collectives";
  const bool both_objects_or_tensors = sent.dtype.empty() == received.dtype.empty();
  finding.verdict = !both_objects_or_tensors       ? Verdict::op_mismatch
                    : sent.dtype != received.dtype ? Verdict::dtype_mismatch
                                                   : Verdict::shape_mismatch;
  finding.ranks = RankSet{sender, receiver};
  finding.op = to_finding_op(sent);
  const auto in_brackets = [](const std::string& place) { return place.empty() ? "" : " (" + place + ")"; };
  const std::string place = place_of(sent);
  if (!place.empty()) finding.where = place;
  finding.message = fmt::format(
      "rank {} called {}{} in group {}, and rank {} receives that message with {}{}. A recv must have the dtype and "
      "the number of elements of its send",
      sender, describe(sent), in_brackets(place), sent.group, receiver, describe(received),
      in_brackets(place_of(received)));
  return CollectiveMismatch(finding.message, finding);
}

}  // namespace lockstep::dist
