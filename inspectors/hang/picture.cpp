#include "inspectors/hang/picture.h"

#include <tuple>

#include "protocol/dist_error.h"

namespace lockstep::inspect {

bool read_log(RankPicture& rank, const std::string& path, const LogPart& part) {
  try {
    const dist::CollectiveLogReader log(path);
    rank.waits.clear();
    for (auto& record : log.in_flight()) rank.waits.push_back({std::move(record), {}});
    rank.groups = log.groups();
    rank.recent = log.last(part.recent);
    if (part.digests) rank.digests = dist::call_digests(log);
    std::tie(rank.cell, rank.step) = log.position();
    rank.main_thread = static_cast<int>(log.pid());  // the first thread of a process has the number of the process
    rank.realtime_minus_monotonic = log.realtime_minus_monotonic();
    rank.has_log = true;
  } catch (const dist::Error&) {  // not written yet, or of another version: the rank is shown without it
    rank.has_log = false;
  }
  return rank.has_log;
}

}  // namespace lockstep::inspect
