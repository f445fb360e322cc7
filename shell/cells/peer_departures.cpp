#include "shell/cells/peer_departures.h"

#include <map>
#include <tuple>
#include <utility>

namespace lockstep::shell {
namespace {

constexpr std::chrono::milliseconds kTogether{20};

}  // namespace

void PeerDepartures::left(int rank, CellStatus how) {
  ++departures_[rank];
  how_left_[rank] = how;
}

void PeerDepartures::regrouped(const RankSet& ranks) {
  dead_ = {};
  for (int rank : ranks) entered_[rank].clear();
}

void PeerDepartures::cell_is_over(int64_t cell) {
  std::erase_if(known_, [&](const auto& each) { return each.first.first == cell; });
}

void PeerDepartures::report_soon() {
  if (!deadline_.is_set()) deadline_.set_after(kTogether, [this] { report(); });
}

void PeerDepartures::report() {
  RankSet others = (services_.workers.live() | dead_) - cells_.busy();
  // A rank that has loaded a cell, and waits for others to load it, will run it.
  for (const OpenCell& cell : cells_.all()) others = others - cell.run.in(CellRun::Phase::loaded);
  for (const OpenCell& cell : cells_.all()) {
    const RankSet active = cell.run.active();
    // Ranks that have left in the same way are one message, to all that have not heard of them.
    std::map<std::tuple<RankSet, CellStatus, std::map<std::string, int64_t>>, RankSet> news;
    for (const int peer : others) {
      Known& known = known_[{cell.run.id(), peer}];
      if (const int64_t departure = departures_[peer] + 1; std::exchange(known.departure, departure) != departure)
        known.by = {};
      const RankSet to = active - known.by;
      if (to.empty()) continue;
      known.by = known.by | to;
      const auto how = how_left_.find(peer);
      news[{to, how == how_left_.end() ? CellStatus::ok : how->second, entered_[peer]}].insert(peer);
    }
    for (const auto& [what, peers] : news) {
      const auto& [to, how, entered] = what;
      services_.workers.hub().send(to, protocol::PeersDone{cell.run.id(), peers, how, entered});
    }
  }
  if (!others.empty()) reported_();
}

}  // namespace lockstep::shell
