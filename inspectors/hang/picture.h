// A picture is the state of all ranks at one moment: the collectives of each, from its collective log, and what it is
// doing, from its I/O thread. Plain values, so that tests can make them up.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/call_digests.h"
#include "collectives/log/collective_log.h"
#include "inspectors/evidence/evidence.h"
#include "inspectors/hang/activity.h"
#include "protocol/rank_set.h"
#include "protocol/status.h"

namespace lockstep::inspect {

/// A collective that a rank has entered and that has not ended.
struct RankWait {
  dist::CollectiveRecord call;
  std::string where;  // "cell 7, line 4"
  RankSet missing = {};  // ranks that will not enter it, as the rank itself reported
  bool broken = false;  // it has failed, since another rank left it (aftermath.h)
};

/// An exception that was thrown and caught in the cell.
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
  CellStatus how = CellStatus::ok;  // how a rank left the cell
  std::string error_type;  // if it threw or died: "std::runtime_error", "SIGSEGV"
  std::string error_text;
  bool consequence = false;  // the error is the consequence of another rank's
  std::string where;  // the line of a cell at which it is, threw or died
  std::vector<StackFrame> stack;  // of the thread that runs cells, innermost first
  FindingKind activity = FindingKind::unknown;
  std::vector<RankWait> waits;  // oldest first
  bool has_log = false;  // what follows is known
  int64_t cell = 0, step = 0;  // at which it is by its log, or was when its process ended; cell 0: none
  int main_thread = 0;  // the kernel's number of the thread that runs cells
  int64_t realtime_minus_monotonic = 0;  // ns, of its machine's clocks; 0: unknown
  std::vector<dist::LoggedGroup> groups;
  std::vector<dist::CollectiveRecord> recent;  // oldest first
  std::string last_where;  // the line of the newest record
  std::map<uint64_t, std::string> lines;  // of other records, by `entry`, where they have been asked for
  std::vector<CaughtThrow> caught;  // oldest first; only the newest are kept
  std::vector<dist::CallDigests> digests;  // where LogPart asks for them

  bool gone() const { return place != Place::in_cell; }
  /// Whether it left the cell without an error.
  bool has_finished() const { return place == Place::left && how == CellStatus::ok; }
};

struct HangPicture {
  int64_t cell = 0;  // its number in the logs
  int64_t number = 0;  // its number for people
  int64_t now_ns = 0;  // CLOCK_MONOTONIC
  bool calls_compared = false;  // ranks compare their calls themselves, and report those that do not match
  std::vector<RankPicture> ranks;
  std::vector<Evidence> evidence;  // of NCCL and c10d; join.h compares it with the logs
  std::vector<std::string> unread;  // evidence that could not be read, and why

  const RankPicture* rank(int number) const {
    // Mostly all ranks are there, in their order.
    if (const auto at = static_cast<size_t>(number); at < ranks.size() && ranks[at].rank == number) return &ranks[at];
    for (const RankPicture& each : ranks)
      if (each.rank == number) return &each;
    return nullptr;
  }
};

/// So many of the newest records show the usual order of calls, and stragglers.
inline constexpr size_t kRecentRecords = 512;

/// What is read of a log besides its waits and groups.
struct LogPart {
  size_t recent = kRecentRecords;  // how many of the newest records
  bool digests = false;  // those of its calls, too
};

/// Fills in the waits (without lines), groups and `part` of the log at `path`. Returns false if it can't be read.
bool read_log(RankPicture& rank, const std::string& path, const LogPart& part = {});

}  // namespace lockstep::inspect
