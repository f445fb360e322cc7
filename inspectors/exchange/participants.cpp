#include "inspectors/exchange/participants.h"

#include <algorithm>

#include "collectives/rank_context.h"

namespace lockstep::inspect {

int own_rank() {
  const auto context = dist::current_context();
  return context ? context->rank() : 0;
}

RankSet live_ranks() {
  const auto context = dist::current_context();
  return context ? context->live_ranks() : RankSet{0};
}

std::optional<int> ranks_out_of_reach() {
  const auto session = dist::session_world();
  const int others = session ? session->options.world_size - 1 : 0;
  const auto context = dist::current_context();
  return others > 0 && (!context || context->world_size() == 1) ? std::optional(others) : std::nullopt;
}

size_t rank_index_of(const RankSet& ranks, int rank) {
  return static_cast<size_t>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace lockstep::inspect
