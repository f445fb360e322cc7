#include "inspectors/hang/aftermath.h"

#include <algorithm>
#include <map>

#include "inspectors/hang/needs.h"

namespace lockstep::inspect {

std::optional<RankWait> wait_before_leaving(const HangPicture& picture, const RankPicture& rank) {
  const bool broken = rank.how == CellStatus::error && rank.consequence;
  if (rank.place != RankPicture::Place::left || !(broken || rank.how == CellStatus::aborted)) return std::nullopt;
  const auto failed = std::find_if(rank.recent.rbegin(), rank.recent.rend(), [&](const auto& record) {
    return record.cell == picture.cell && record.state == dist::CollectiveState::failed;
  });
  if (failed == rank.recent.rend()) return std::nullopt;
  return RankWait{.call = *failed, .where = rank.where};
}

std::optional<HangPicture> put_back(const HangPicture& picture) {
  std::map<int, RankWait> broken;
  for (const RankPicture& rank : picture.ranks)
    if (auto wait = wait_before_leaving(picture, rank); wait && rank.how == CellStatus::error) {
      wait->broken = true;
      broken.emplace(rank.rank, std::move(*wait));
    }
  if (broken.empty()) return std::nullopt;
  HangPicture result = picture;
  for (bool changed = true; changed;) {
    changed = false;
    for (RankPicture& rank : result.ranks) {
      const auto wait = broken.find(rank.rank);
      if (wait == broken.end()) continue;
      // Some missing rank broke the collective, or has been put back itself.
      const RankSet missing = missing_for(result, rank, wait->second);
      if (std::none_of(missing.begin(), missing.end(), [&](int peer) {
            const RankPicture& other = *result.rank(peer);
            return other.gone() || has_left_group(other, wait->second.call) ||
                   std::any_of(other.waits.begin(), other.waits.end(),
                               [](const RankWait& each) { return each.broken; });
          }))
        continue;
      rank.place = RankPicture::Place::in_cell;
      rank.activity = FindingKind::collective;
      rank.waits = {std::move(wait->second)};
      broken.erase(wait);
      changed = true;
    }
  }
  return result;
}

}  // namespace lockstep::inspect
