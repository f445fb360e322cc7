#include "shell/cells/peer_departures.h"

#include <map>
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

void PeerDepartures::cell_is_over(int64_t cell) { known_.erase(cell); }

void PeerDepartures::report_soon() {
  if (!deadline_.is_set()) deadline_.set_after(kTogether, [this] { report(); });
}

void PeerDepartures::report() {
  RankSet others = (services_.workers.live() | dead_) - cells_.busy();
  // A rank that has loaded a cell, and waits for others to load it, will run it.
  for (const OpenCell& cell : cells_.all()) others = others - cell.run.in(CellRun::Phase::loaded);
  for (const OpenCell& cell : cells_.all()) {
    const RankSet active = cell.run.active();
    // Ranks that the same ranks have heard of are told of together. With a thousand ranks there are few such sets.
    struct Batch {
      std::shared_ptr<const RankSet> before;  // who has heard of them
      RankSet to;
      std::shared_ptr<const RankSet> after;
    };
    std::map<const RankSet*, Batch> batches;
    using How = std::pair<CellStatus, std::map<std::string, int64_t>>;  // they have left, with these collectives
    std::map<const Batch*, std::map<How, RankSet>> news;
    for (const int peer : others) {
      Known& known = known_[cell.run.id()][peer];
      if (const int64_t departure = departures_[peer] + 1; std::exchange(known.departure, departure) != departure)
        known.by.reset();
      const auto [found, is_new] = batches.try_emplace(known.by.get());
      Batch& batch = found->second;
      if (is_new) {
        const RankSet before = known.by ? *known.by : RankSet();
        batch = {.before = known.by, .to = active - before, .after = std::make_shared<const RankSet>(before | active)};
      }
      if (batch.to.empty()) continue;
      known.by = batch.after;
      const auto how = how_left_.find(peer);
      news[&batch][{how == how_left_.end() ? CellStatus::ok : how->second, entered_[peer]}].insert(peer);
    }
    for (const auto& [batch, departures] : news)
      for (const auto& [how, peers] : departures)
        services_.workers.hub().send(batch->to, protocol::PeersDone{cell.run.id(), peers, how.first, how.second});
  }
  if (!others.empty()) reported_();
}

}  // namespace lockstep::shell
