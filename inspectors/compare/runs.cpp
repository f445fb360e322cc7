#include "inspectors/compare/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "protocol/error.h"

namespace lockstep::inspect::compare {

int64_t Run::steps() const {
  int64_t steps = ranks.empty() ? 0 : ranks.front().steps;
  for (const Recording& each : ranks) steps = std::min(steps, each.steps);
  return steps;
}

Run read_run(const std::string& folder) {
  const auto path = [&](int rank) {
    return (std::filesystem::path(folder) / fmt::format("rank-{}.rec", rank)).string();
  };
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) throw Error(folder + " is no folder of recordings");
  Run run;
  const auto add = [&](int rank) {
    if (!std::filesystem::exists(path(rank), error))
      throw Error(fmt::format("{} has no recording of rank {}{}", folder, rank,
                              rank > 0 ? ": has the rank trained, and does it write to the same folder?" : ""));
    Recording recording = read_recording(path(rank));
    if (recording.about.rank != rank)
      throw Error(fmt::format("{} is the recording of rank {}", recording.path, recording.about.rank));
    if (rank > 0 && recording.about.world_size != run.ranks.front().about.world_size)
      throw Error(fmt::format("{} is of a job of {} ranks, and {} of one of {}", recording.path,
                              recording.about.world_size, run.ranks.front().path, run.ranks.front().about.world_size));
    run.ranks.push_back(std::move(recording));
  };
  add(0);
  for (int rank = 1; rank < run.ranks.front().about.world_size; ++rank) add(rank);
  return run;
}

Pieces::Pieces(const Run& run) {
  for (const Recording& recording : run.ranks) {
    for (const PieceName& each : recording.names)
      if (!each.type.empty()) types_.emplace(each.name, each.type);
    for (const Piece& piece : recording.pieces) {
      PieceKey key{piece.step, piece.kind, recording.names[piece.name].name, piece.call};
      auto& of_key = pieces_[key];
      if (of_key.empty()) order_.push_back(std::move(key));
      of_key.push_back({recording.about.rank, &piece});
    }
  }
}

const std::vector<RankPiece>& Pieces::of(const PieceKey& key) const {
  static const std::vector<RankPiece> none;
  const auto found = pieces_.find(key);
  return found == pieces_.end() ? none : found->second;
}

const std::string& Pieces::type_of(const std::string& name) const {
  static const std::string none;
  const auto found = types_.find(name);
  return found == types_.end() ? none : found->second;
}

Layout layout_of(const Run& run, uint32_t step) {
  Layout layout;
  std::map<std::vector<std::vector<uint64_t>>, RankSet> groups;
  for (const Recording& recording : run.ranks) {
    std::vector<std::vector<uint64_t>> given;
    for (const Samples& each : recording.samples) {
      if (each.step != step) continue;
      given.push_back(each.hashes);
      layout.batches[{recording.about.rank, each.micro_batch}] = &each.hashes;
    }
    layout.micro_batches = std::max(layout.micro_batches, given.size());
    groups[given].insert(recording.about.rank);
  }
  for (auto& [given, ranks] : groups) layout.groups.push_back(ranks);
  std::ranges::sort(layout.groups, {}, [](const RankSet& each) { return *each.begin(); });
  return layout;
}

const RankSet& Layout::group_of(int rank) const {
  return *std::ranges::find_if(groups, [&](const RankSet& each) { return each.contains(rank); });
}

int Layout::place_of(int rank) const {
  const RankSet& group = group_of(rank);
  return static_cast<int>(std::ranges::find(group, rank) - group.begin());
}

RankSet Layout::across_groups(int rank) const {
  const auto place = static_cast<size_t>(place_of(rank));
  RankSet ranks;
  for (const RankSet& each : groups)
    if (place < each.size()) ranks.insert(each.ranks()[place]);
  return ranks;
}

size_t Layout::samples_of(int rank, uint32_t micro_batch) const {
  const auto found = batches.find({rank, micro_batch});
  return found == batches.end() ? 0 : found->second->size();
}

}  // namespace lockstep::inspect::compare
