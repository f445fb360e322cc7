// What is known of all ranks at one moment: how far each came in its collectives, and what it does. The collective logs
// give the first without any rank's help, I/O threads the second. Plain values: a test makes them up.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/collective_log.h"
#include "inspectors/hang/activity.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// A collective that a rank has entered and that is not done.
struct RankWait {
  dist::CollectiveRecord call;
  std::string where;  // "cell 7, line 4"
  /// Ranks that will not come, where the rank itself has said so.
  RankSet missing = {};
  /// It is over: another rank left it, and that ended this rank's cell (aftermath.h).
  bool broken = false;
};

/// An exception that a rank's own code threw in the cell, and that did not end it: somebody caught it.
struct CaughtThrow {
  std::string type;  // "std::runtime_error"
  std::string where;  // "cell 7, line 4"
  int64_t time_ns = 0;  // CLOCK_MONOTONIC
};

struct RankPicture {
  enum class Place {
    in_cell,
    left,  // has left the cell: `how`
    elsewhere,  // does not run the cell
    dead,
  };

  int rank = 0;
  Place place = Place::in_cell;
  std::string how;  // of a rank that left: ok, error, interrupted, aborted
  std::string error_type;  // of a rank that threw or died: "std::runtime_error", "SIGSEGV"
  std::string error_text;
  bool consequence = false;  // that error says that another rank is the cause
  std::string where;  // line of a cell in which it is, threw or died
  std::vector<StackFrame> stack;  // of the thread that runs cells, innermost first
  Activity activity = Activity::unknown;
  std::vector<RankWait> waits;  // oldest first
  bool has_log = false;  // what follows is known
  int main_thread = 0;  // the kernel's number of the thread that runs cells
  std::vector<dist::LoggedGroup> groups;
  std::vector<dist::CollectiveRecord> recent;  // oldest first
  std::string last_where;  // line of the newest record
  std::vector<CaughtThrow> caught;  // oldest first; of many the newest

  bool gone() const { return place != Place::in_cell; }
};

struct HangPicture {
  int64_t cell = 0;  // as the logs name it
  int64_t number = 0;  // as people do
  int64_t now_ns = 0;  // CLOCK_MONOTONIC
  bool calls_compared = false;  // ranks compare their calls themselves, and tell what does not match
  std::vector<RankPicture> ranks;

  const RankPicture* rank(int number) const {
    for (const RankPicture& each : ranks)
      if (each.rank == number) return &each;
    return nullptr;
  }
};

/// So many of the newest records are enough to see the usual order of calls, and stragglers.
inline constexpr size_t kRecentRecords = 512;

/// Fills in what the log at `path` has: waits (without lines), groups, the `recent` newest records. False where it
/// can't be read.
bool read_log(RankPicture& rank, const std::string& path, size_t recent = kRecentRecords);

}  // namespace lockstep::inspect
