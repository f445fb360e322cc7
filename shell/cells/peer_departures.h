// Reports to the ranks that are still in a cell which ranks have left it, and which collectives these had entered
// (PeersDone). A rank that has left enters no more, so a rank that waits for it in a later collective answers with
// Waiting.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "shell/cells/cell_services.h"
#include "shell/cells/open_cells.h"
#include "shell/processes/deadline.h"

namespace lockstep::shell {

class PeerDepartures {
 public:
  /// `reported` is called whenever ranks have been reported to others.
  PeerDepartures(const CellServices& services, OpenCells& cells, std::function<void()> reported)
      : services_(services), cells_(cells), reported_(std::move(reported)), deadline_(services.loop) {}

  /// Notes that `rank` has entered so many collectives of each group.
  void entered(int rank, const std::map<std::string, int64_t>& collectives) { entered_[rank] = collectives; }
  const std::map<std::string, int64_t>& entered_by(int rank) { return entered_[rank]; }
  void left(int rank, CellStatus how);
  void died(int rank) { dead_.insert(rank); }
  /// Notes that `ranks` are connected afresh: they count from the beginning, and dead ranks are in no group any more.
  void regrouped(const RankSet& ranks);
  void cell_is_over(int64_t cell);

  /// Reports after a moment to the ranks that are still in a cell: ranks mostly leave it together.
  void report_soon();

 private:
  void report();

  const CellServices& services_;
  OpenCells& cells_;
  std::function<void()> reported_;
  std::map<int, std::map<std::string, int64_t>> entered_;  // rank → group → collectives
  std::map<int, int64_t> departures_;  // rank → how often it has left a cell
  std::map<int, CellStatus> how_left_;
  RankSet dead_;
  /// A departure of a rank, and who knows of it. Ranks that were reported together share the set.
  struct Known {
    int64_t departure = 0;
    std::shared_ptr<const RankSet> by;  // null: nobody
  };
  std::map<int64_t, std::map<int, Known>> known_;  // cell → rank that has left
  Deadline deadline_;
};

}  // namespace lockstep::shell
