#include "inspectors/exchange/participants.h"

#include <fmt/format.h>

#include "collectives/rank_context.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {

RankSet taking_part(const std::optional<RankSet>& ranks, const char* function) {
  const auto context = dist::current_context();
  const RankSet alive = context ? context->live_ranks() : RankSet{0};
  const RankSet result = ranks.value_or(alive);
  if (!(result - alive).empty())
    throw dist::ArgumentError(
        fmt::format("{}: there is no rank {}; ranks are {}", function, (result - alive).str(), alive.str()));
  return result;
}

int own_rank() {
  const auto context = dist::current_context();
  return context ? context->rank() : 0;
}

void with_talk(const RankSet& ranks, std::chrono::milliseconds deadline, const std::function<void(Talk&)>& compare) {
  if (ranks.size() == 1) {
    LocalRound alone(ranks);
    compare(*alone.talk(ranks.ranks().front()));
    return;
  }
  const auto context = dist::require_context("inspect");
  ChannelTalk talk(Channel::of(*context), context->rank(), ranks, deadline);
  compare(talk);
}

Finding absent_finding(const std::string& inspector, const std::string& call, const RankSet& ranks,
                       const RankSet& missing, std::chrono::milliseconds deadline) {
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = inspector;
  finding.verdict = "missing";
  finding.kind = "call";
  finding.ranks = missing;
  finding.reference_ranks = ranks - missing;
  finding.message =
      fmt::format("{} did not call {} within {:.3g} s; {} did. Every rank has to call it, for the same thing",
                  missing.words(), call, std::chrono::duration<double>(deadline).count(), (ranks - missing).words());
  return finding;
}

}  // namespace lockstep::inspect
