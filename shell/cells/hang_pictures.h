// Puts together, for inspectors/hang, what all ranks do at a moment: from the collective logs, which outlive the ranks,
// from the state of the open cells, and from the answers of the ranks' I/O threads, where these were asked for stacks
// and lines of code.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "inspectors/hang/picture.h"
#include "shell/cells/cell_services.h"
#include "shell/cells/open_cells.h"

namespace lockstep::shell {

class HangPictures {
 public:
  using Answers = std::map<int, protocol::question::Hang::Answer>;  // by rank

  HangPictures(const CellServices& services, OpenCells& cells) : services_(services), cells_(cells) {}

  /// Returns the question to all live ranks whose answers picture() takes.
  protocol::question::Hang question() const;
  /// Returns all ranks at this moment, seen from a cell (null: no cell is open), with the answers to question().
  /// `recent`: how many of the newest records of each log are read.
  inspect::HangPicture picture(const CellRun* run, const Answers& answers,
                               size_t recent = inspect::kRecentRecords) const;

  /// Returns pictures of ranks that have nothing but their logs.
  std::vector<inspect::RankPicture> logs_of(const RankSet& ranks, const inspect::LogPart& part) const;
  /// Returns the numbers in the log of the collectives that each live rank is in.
  std::map<int, std::set<uint64_t>> entries_in_flight() const;
  /// Returns the collectives that a rank is in, or has begun, in the cell `id`, oldest first, from its log.
  std::vector<inspect::RankWait> waits_of(int rank, int64_t id) const;
  /// Returns those of `ranks` whose logs say that they are in no collective.
  RankSet outside_collectives(const RankSet& ranks) const;

  /// How far a rank is in its collectives: the number of the newest, and of those that it is in.
  struct Progress {
    uint64_t newest = 0;
    std::set<uint64_t> in_flight;
    bool operator==(const Progress&) const = default;
  };
  Progress progress_of(int rank) const;

 private:
  inspect::RankPicture::Place place_of(int rank, const CellRun* run, const RankSet& live) const;
  std::map<int, std::string> lines_of_dead(const Answers& answers) const;

  const CellServices& services_;
  OpenCells& cells_;
};

}  // namespace lockstep::shell
