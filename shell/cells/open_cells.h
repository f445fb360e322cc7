// Holds the cells that are not over, oldest first. At most one of them is served, which means that the runner waits for
// it. The others were left open in a terminal: their last ranks wait for ranks that will not come, and cells on those
// may still join them.
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shell/cells/cell_request.h"
#include "shell/cells/cell_run.h"
#include "shell/events/event.h"

namespace lockstep::shell {

struct OpenCell {
  CellRun run;
  CellEvent event;  // what is known of it before its end
  std::optional<CellStatus> not_loaded;  // why nothing of it has run, where no rank is the cause
  bool has_met = false;  // a rank has met others in it
  bool settles = false;  // the compiler waits for Settle
  RankSet reported_dead;  // whose deaths have been reported while the others run on
  bool reported_no_store = false;  // it has been reported that it can make no new group without the store
};

class OpenCells {
 public:
  /// Returns the compiler's and the workers' name of a new cell, which people call `number`.
  int64_t new_id(int64_t number);
  /// Opens a new cell, which is served from now on. It stays where it is until close().
  OpenCell& open(int64_t id, const CellRequest& request, bool has_objects);
  void stop_serving() { served_ = nullptr; }
  void close(const OpenCell& cell);

  std::list<OpenCell>& all() { return cells_; }
  std::vector<CellRun*> runs();
  OpenCell* served() const { return served_; }  // null where none is

  /// Returns the cell that `rank` has not left; null where it is in none.
  OpenCell* with(int rank);
  /// Returns the same, where it is the cell `id`.
  OpenCell* with(int rank, int64_t id);
  /// Returns the cell that `rank` has loaded, and begins once the others have, too.
  OpenCell* that_begins(int rank);
  /// Notes that `rank` has left the cell `id`.
  void left(int rank, int64_t id) { last_[rank] = id; }
  /// Returns the cell that output of `rank` belongs to: the one that it is in, or the last that it was in.
  int64_t id_of_output(int rank);

  /// Returns ranks that are in a cell.
  RankSet busy() const;
  bool is_any_busy() const;
  /// Returns the number of the cell that `rank` is in; 0: none.
  int64_t cell_of(int rank) const;
  /// Returns "all_reduce #12 of cell 7, line 3"; empty: the rank waits for nobody.
  std::string wait_of(int rank) const;
  /// Returns the number of the cell `id`.
  int64_t number_of(int64_t id) const;

 private:
  std::list<OpenCell> cells_;
  OpenCell* served_ = nullptr;
  int64_t last_id_ = 0;
  std::map<int64_t, int64_t> numbers_;  // id → number, where they differ
  std::map<int, int64_t> last_;  // rank → id of the last cell that it left
};

}  // namespace lockstep::shell
