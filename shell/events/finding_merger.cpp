#include "shell/events/finding_merger.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace lockstep::shell {
namespace {

/// Whether two ranks found the same. How many elements are hit, and which, may differ: each rank reads its own data.
bool alike(const Finding& a, const Finding& b) {
  const auto same_name = [](const FindingTensor& x, const FindingTensor& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape;
  };
  return a.severity == b.severity && a.cell == b.cell && a.step == b.step && a.inspector == b.inspector &&
         a.verdict == b.verdict && a.object == b.object && a.kind == b.kind && a.where == b.where &&
         a.op.has_value() == b.op.has_value() && (!a.op || a.op->name == b.op->name) &&
         std::ranges::equal(a.tensors, b.tensors, same_name) && message_without_ranks(a) == message_without_ranks(b);
}

/// Returns one finding of both, with the tensors as the lower rank found them.
Finding joined(const Finding& a, const Finding& b) {
  const bool a_first = a.ranks.ranks().front() < b.ranks.ranks().front();
  Finding result = a_first ? a : b;
  result.ranks = a.ranks | b.ranks;
  set_message_with_ranks(result, message_without_ranks(a));
  return result;
}

}  // namespace

FindingMerger::FindingMerger(std::function<void(Finding)> emit) : emit_(std::move(emit)) {}

void FindingMerger::add(Finding finding, int from, const RankSet& may_follow, Clock::time_point now) {
  if (finding.subject.empty() || finding.ranks != RankSet{from}) {
    emit_(std::move(finding));
    return;
  }
  auto held = std::find_if(held_.begin(), held_.end(), [&](const Held& each) {
    return alike(each.finding, finding) && !each.finding.ranks.contains(from);
  });
  if (held == held_.end()) {
    held_.push_back({std::move(finding), may_follow - RankSet{from}, now});
    held = std::prev(held_.end());
  } else {
    held->finding = joined(held->finding, finding);
    held->awaited.erase(from);
  }
  if (held->awaited.empty()) emit(held);
}

void FindingMerger::left(int rank) {
  for (auto held = held_.begin(); held != held_.end();) {
    const auto next = std::next(held);
    held->awaited.erase(rank);
    if (held->awaited.empty()) emit(held);
    held = next;
  }
}

std::optional<FindingMerger::Clock::time_point> FindingMerger::deadline() const {
  if (held_.empty()) return std::nullopt;
  return held_.front().since + kHold;
}

void FindingMerger::due(Clock::time_point now) {
  while (!held_.empty() && held_.front().since + kHold <= now) emit(held_.begin());
}

void FindingMerger::flush() {
  while (!held_.empty()) emit(held_.begin());
}

void FindingMerger::emit(std::list<Held>::iterator held) {
  Finding finding = std::move(held->finding);
  held_.erase(held);
  finding.subject.clear();  // nothing is merged with it any more
  emit_(std::move(finding));
}

}  // namespace lockstep::shell
