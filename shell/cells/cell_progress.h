// Puts loops over progress() on the ranks of a cell together: one row for each loop, with the progress of each rank.
//
// What the ranks report within kGather is one event. The end of a loop on a rank is a mark in its output: the last
// event of a loop comes after all that its ranks wrote before they left it.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "shell/events/event.h"
#include "shell/processes/deadline.h"

namespace lockstep::shell {

class CellProgress {
 public:
  /// Ranks report at the same moments, or somewhat later where their machine is busy.
  static constexpr std::chrono::milliseconds kGather{40};

  /// `mark` puts a mark into the output of a rank; marked() follows when that output is out.
  CellProgress(EventLoop& loop, std::function<void(Event)> emit,
               std::function<void(int rank, int64_t number, std::string mark)> mark);

  /// `number` is that of the cell, for people.
  void report(int rank, int64_t number, const protocol::Progress& message);
  void marked(const RankSet& ranks, const std::string& mark);
  /// Notes that `rank` has left its cell, or is dead, and with it its loops.
  void left(int rank);
  /// Ends the loops of the cell `id`, whose output is out.
  void cell_is_over(int64_t id);

 private:
  struct Rank {
    protocol::Progress last;
    bool ended = false;  // and its output is out
  };
  struct Row {
    int64_t cell = 0, number = 0;
    std::map<int, Rank> ranks;
    bool changed = false;
  };
  int64_t loop_number(const std::string& key);
  void emit(const std::string& key, Row& row, bool is_over);
  void emit_changed();
  bool end_if_over(const std::string& key);

  const std::function<void(Event)> emit_;
  const std::function<void(int, int64_t, std::string)> mark_;
  std::map<std::string, Row> rows_;  // by cell and name of the loop, which is the mark
  std::map<std::string, int64_t> numbers_;  // of the loops of open cells
  int64_t last_number_ = 0;
  Deadline due_;
};

}  // namespace lockstep::shell
