#include "shell/cells/peer_departures.h"

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
  std::erase_if(known_, [&](const auto& each) { return std::get<0>(each.first) == cell; });
}

void PeerDepartures::report_soon() {
  if (!deadline_.is_set()) deadline_.set_after(kTogether, [this] { report(); });
}

void PeerDepartures::report() {
  RankSet others = (services_.workers.live() | dead_) - cells_.busy();
  // A rank that has loaded a cell, and waits for others to load it, will run it.
  for (const OpenCell& cell : cells_.all()) others = others - cell.run.in(CellRun::Phase::loaded);
  for (const OpenCell& cell : cells_.all())
    for (int rank : cell.run.active())
      for (int peer : others) {
        const int64_t departure = departures_[peer] + 1;
        if (std::exchange(known_[{cell.run.id(), rank, peer}], departure) == departure) continue;
        const auto how = how_left_.find(peer);
        services_.workers.hub().send(
            rank, protocol::PeerDone{cell.run.id(), peer, how == how_left_.end() ? CellStatus::ok : how->second,
                                     entered_[peer]});
      }
  if (!others.empty()) reported_();
}

}  // namespace lockstep::shell
