#include "collectives/group_arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::dist {

namespace {
/// Members that are not in the default group have no number there.
std::string words_of_ranks(const RankContext& context, const std::vector<int>& members) {
  RankSet ranks(context.default_ranks_of(members));
  ranks.erase(-1);
  return ranks.str();
}
}  // namespace

GroupEntry require_member(const char* function, const Group& group) {
  const auto context = require_context(function);
  GroupEntry entry = context->find(group);
  if (!entry.group->member())
    throw ArgumentError(fmt::format(
        "dist::{}: rank {} is not in group {} (ranks {}). Call it on those ranks only: "
        "if (dist::get_rank(group) >= 0)",
        function, get_rank(), entry.group->identity().name, words_of_ranks(*context, entry.group->identity().ranks)));
  return entry;
}

int default_rank_of(int session_rank) {
  const auto context = current_context();
  return context ? context->default_rank_of(session_rank) : session_rank;
}

int require_rank(const char* function, const char* name, int rank, const GroupEntry& entry) {
  const auto& identity = entry.group->identity();
  const auto context = require_context(function);
  const auto found = std::ranges::find(identity.ranks, context->session_rank_of(rank));
  if (found != identity.ranks.end()) return static_cast<int>(found - identity.ranks.begin());
  throw ArgumentError(
      fmt::format("dist::{}: {} = {}, but group {} has ranks {} ({} counts in the default group; dist::group_{}(r) "
                  "counts in this one)",
                  function, name, rank, identity.name, words_of_ranks(*context, identity.ranks), name,
                  std::string_view(name) == "dst" ? "dst" : "src"));
}

int require_rank(const char* function, const char* name, const Rank& rank, const GroupEntry& entry) {
  if (!rank.in_group()) return require_rank(function, name, rank.value(), entry);
  const auto& identity = entry.group->identity();
  if (rank.value() >= 0 && rank.value() < static_cast<int>(identity.ranks.size())) return rank.value();
  throw ArgumentError(fmt::format("dist::{}: group_{} = {}, but the ranks of group {} go from 0 to {}", function, name,
                                  rank.value(), identity.name, identity.ranks.size() - 1));
}

}  // namespace lockstep::dist
