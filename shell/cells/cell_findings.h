// Collects what is found while a cell runs, by its ranks and by the session. A finding is reported once, also where
// several ranks find it; equal findings of ranks about themselves become one (finding_merger.h).
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shell/events/event.h"
#include "shell/events/finding_merger.h"
#include "shell/processes/deadline.h"

namespace lockstep::shell {

class CellFindings {
 public:
  CellFindings(EventLoop& loop, std::function<void(Event)> emit);
  CellFindings(const CellFindings&) = delete;
  CellFindings& operator=(const CellFindings&) = delete;

  /// `from` is the rank that found it, -1 for the session itself. `may_follow` are ranks that may find the same yet.
  void add(Finding finding, int from, const RankSet& may_follow);
  /// Notes that `rank` finds nothing more in this cell.
  void left(int rank) { merger_.left(rank); }
  /// Reports what is held back.
  void flush() { merger_.flush(); }

  const std::vector<Finding>& all() const { return reported_; }  // since the last clear()
  void clear();

 private:
  std::vector<Finding> reported_;
  std::map<std::string, RankSet> sources_;  // a finding as text → the ranks that it came from
  FindingMerger merger_;
  Deadline due_;
};

}  // namespace lockstep::shell
