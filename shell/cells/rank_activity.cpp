#include "shell/cells/rank_activity.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace lockstep::shell {
namespace {

using Part = ActivityEvent::Part;

/// Takes the oldest collective that the rank sits in; else the oldest that it has begun and does not wait for yet.
Part part_of(const std::vector<inspect::RankWait>& waits, int64_t now_ns) {
  if (waits.empty()) return {.ranks = {}, .state = "running"};
  auto wait = std::find_if(waits.begin(), waits.end(), [](const auto& each) { return !each.call.async; });
  const bool sits = wait != waits.end();
  if (!sits) wait = waits.begin();
  const dist::CollectiveRecord& call = wait->call;
  return {.ranks = {},
          .state = sits ? "in_collective" : "running",
          .collective = call.op,
          .group = call.group,
          .seq = call.seq,
          .since_s = static_cast<double>(now_ns - call.entered_ns) / 1e9};
}

}  // namespace

std::vector<Part> rank_activity(const CellRun& run, const HangPictures& pictures) {
  const int64_t now_ns = dist::monotonic_ns();
  std::vector<Part> parts;
  for (const int rank : run.ranks()) {
    Part part = run.is_active(rank)
                    ? part_of(pictures.waits_of(rank, run.id()), now_ns)
                    : Part{.ranks = {}, .state = run.is_in(CellRun::Phase::dead, rank) ? "dead" : "done"};
    const auto same = std::find_if(parts.begin(), parts.end(), [&](const Part& other) {
      return std::tie(other.state, other.collective, other.group, other.seq) ==
             std::tie(part.state, part.collective, part.group, part.seq);
    });
    if (same == parts.end()) {
      part.ranks.insert(rank);
      parts.push_back(std::move(part));
      continue;
    }
    same->ranks.insert(rank);
    same->since_s = std::max(same->since_s, part.since_s);
  }
  return parts;
}

}  // namespace lockstep::shell
