// Has a process that takes the place of a lost rank load and run what the rank had (past_cells.h). Output, values and
// findings of its cells are left out, since they have been shown. An exception is kept, and ends its cell there.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "shell/cells/cell_services.h"
#include "shell/cells/past_cells.h"

namespace lockstep::shell {

class RankReplay {
 public:
  RankReplay(const CellServices& services, int rank) : services_(services), rank_(rank) {}

  int rank() const { return rank_; }
  int64_t number() const { return number_; }  // of the cell that runs, or did not end; 0: none
  /// Serves until all is done. Returns false where the rank has died, or `interrupted` is true. Throws StartError where
  /// a cell takes longer than --cell-timeout.
  bool run(PastCells& past, const std::function<bool()>& interrupted);

  /// Takes a message of the rank. Returns whether it belongs to the replay.
  bool take(FromWorker& from);

  const Replay& plan() const { return plan_; }
  const std::vector<LeftOutStep>& left_out() const { return left_out_; }  // of Python, by the rank
  const std::vector<FailedAgain>& failures() const { return failures_; }
  int cells() const { return cells_; }  // that have run again
  int64_t output_bytes() const { return output_bytes_; }  // that were left out

 private:
  bool load(const PastObject& object, const std::function<bool()>& stopped);
  void note_end(const Replay::Cell& cell, PastCells& past) const;
  double limit_s(double least_s) const;
  bool serve_until(const std::function<bool()>& done, double least_limit_s) const;
  [[noreturn]] void throw_too_long(int64_t number, double least_limit_s) const;
  bool run(const Replay::Cell& cell, PastCells& past, const std::function<bool()>& stopped);

  const CellServices& services_;
  const int rank_;
  Replay plan_;
  std::optional<protocol::Loaded> loaded_;
  std::optional<protocol::Done> done_;
  std::vector<FailedAgain> failures_;
  std::vector<LeftOutStep> left_out_;
  int64_t number_ = 0;
  int cells_ = 0;
  int64_t output_bytes_ = 0;
};

}  // namespace lockstep::shell
