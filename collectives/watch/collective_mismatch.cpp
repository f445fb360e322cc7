#include "collectives/watch/collective_mismatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "collectives/log/call_order.h"

namespace lockstep::dist {

namespace {
struct Camp {
  RankSet ranks;
  const CalledHere* call;
  const CollectiveRecord& record() const { return call->record; }
};

std::mutex place_mutex;
PlaceOf place_function;

/// Empty where the line is not known here.
std::string place_of(const CollectiveRecord& record, const CollectiveLogReader& here) {
  if (const std::string place = record.place.str(); !place.empty()) return place;
  PlaceOf function;
  {
    std::lock_guard lock(place_mutex);
    function = place_function;
  }
  if (!function || !record.site_cell) return {};
  const uint64_t address = here.code_address(*record.site_cell, record.site_offset);
  return address == 0 ? std::string() : function(address);
}

Verdict verdict_of(const CollectiveRecord& a, const CollectiveRecord& b) {
  if (a.op != b.op) return Verdict::op_mismatch;
  if (a.dtype != b.dtype) return Verdict::dtype_mismatch;
  if (a.shape != b.shape || a.tensor_count != b.tensor_count) return Verdict::shape_mismatch;
  if (a.root != b.root || a.reduce_op != b.reduce_op) return Verdict::op_mismatch;
  return Verdict::shape_mismatch;  // split sizes, or tensors after the first
}
}  // namespace

void set_place_of(PlaceOf place_of) {
  std::lock_guard lock(place_mutex);
  place_function = std::move(place_of);
}

CollectiveMismatch make_mismatch(const std::string& group, int64_t seq, const std::map<int, CalledHere>& called,
                                 const RankSet& missing, const CollectiveLogReader& here) {
  std::vector<Camp> camps;
  for (const auto& [rank, call] : called) {
    const auto same = [&](const Camp& camp) { return describe(camp.record()) == describe(call.record); };
    auto camp = std::find_if(camps.begin(), camps.end(), same);
    if (camp == camps.end()) camp = camps.insert(camps.end(), Camp{{}, &call});
    camp->ranks.insert(rank);
  }
  // The smallest camp first: it is the one to look at.
  std::stable_sort(camps.begin(), camps.end(),
                   [](const Camp& a, const Camp& b) { return a.ranks.size() < b.ranks.size(); });
  const Camp& smallest = camps.front();
  const Camp& largest = camps.back();
  const bool majority = camps.size() > 1 && 2 * largest.ranks.size() > called.size() + missing.size();

  std::string text;
  for (const Camp& camp : camps) {
    text += text.empty() ? fmt::format("{} called {} as #{} of group {}", camp.ranks.words(), describe(camp.record()),
                                       seq, group)
                         : fmt::format(", {} {}", camp.ranks.words(), describe(camp.record()));
    if (const std::string place = place_of(camp.record(), here); !place.empty()) text += " (" + place + ")";
  }
  if (camps.size() == 1) text += ", with sizes that do not fit together";
  if (!missing.empty()) text += fmt::format(" ({} had not come to #{})", missing.words(), seq);

  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "collectives";
  Verdict verdict = camps.size() == 1 ? Verdict::shape_mismatch : verdict_of(smallest.record(), largest.record());
  if (camps.size() == 2) {
    // Whose call came too early? The one that ranks used to make second.
    std::optional<OrderMismatch> order;
    const Camp *right = nullptr, *early = nullptr;
    for (const OrderProof proof : {OrderProof::turns, OrderProof::lines})
      for (const auto& [usual, odd] : {std::pair{&largest, &smallest}, std::pair{&smallest, &largest}})
        if (!order && (order = order_mismatch(usual->call->recent, odd->call->recent, group, seq, proof)))
          right = usual, early = odd;
    if (order) {
      verdict = Verdict::order_mismatch;
      text +=
          order->swapped
              ? ": the same calls in another order"
              : fmt::format(": at #{} all called {} and then {}, so {} left out the first or changed the order",
                            order->before, describe(right->record()), describe(early->record()), early->ranks.words());
    }
  }
  finding.verdict = verdict;
  text +=
      ". All ranks of a group must make the same calls in the same order, with the same dtype, shape, root and reduce "
      "operation";
  for (const Camp& camp : camps)
    if (!majority || &camp != &largest) finding.ranks = finding.ranks | camp.ranks;
  if (majority) finding.reference_ranks = largest.ranks;
  finding.op = to_finding_op(smallest.record());
  finding.op->seq = seq;
  finding.op->group = group;
  if (const std::string place = place_of(smallest.record(), here); !place.empty()) finding.where = place;
  finding.message = text;
  return CollectiveMismatch(text, finding);
}

CollectiveMismatch make_message_mismatch(int sender, const CollectiveRecord& sent, int receiver,
                                         const CollectiveRecord& received, const CollectiveLogReader& here) {
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
  const std::string place = place_of(sent, here);
  if (!place.empty()) finding.where = place;
  finding.message = fmt::format(
      "rank {} called {}{} in group {}, and rank {} receives that message with {}{}. A recv must have the dtype and "
      "the number of elements of its send",
      sender, describe(sent), in_brackets(place), sent.group, receiver, describe(received),
      in_brackets(place_of(received, here)));
  return CollectiveMismatch(finding.message, finding);
}

}  // namespace lockstep::dist
