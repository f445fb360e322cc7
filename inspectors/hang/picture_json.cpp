#include "inspectors/hang/picture_json.h"

#include "collectives/log/collective_log_layout.h"
#include "collectives/log/collective_record_json.h"
#include "protocol/json_fields.h"

namespace lockstep::dist {

LOCKSTEP_JSON(LoggedGroup, name, unnamed, member, incarnation, entered, sent, received, received_from_any,
              shares_memory, sleeps_for, sleeps_in)

}  // namespace lockstep::dist

namespace lockstep::inspect {
namespace {

/// Ranks of a regular group go as three numbers, as they are in the log.
struct SentGroup {
  dist::LoggedGroup group;  // but its ranks
  int first = 0, step = 0, size = 0;
  std::vector<int> ranks;  // step 0: all of them
};
LOCKSTEP_JSON(SentGroup, group, first, step, size, ranks)

SentGroup sent_group(const dist::LoggedGroup& group) {
  dist::log_layout::Group regular{};
  regular.set_ranks(group.ranks);
  return {group, regular.first, regular.step, regular.size, regular.step == 0 ? group.ranks : std::vector<int>()};
}

dist::LoggedGroup received_group(SentGroup sent) {
  dist::log_layout::Group regular{};
  regular.first = sent.first;
  regular.step = sent.step;
  regular.size = sent.size;
  sent.group.ranks = sent.step == 0 ? std::move(sent.ranks) : regular.named_ranks();
  return std::move(sent.group);
}

struct Log {
  bool has_log = false;
  int64_t cell = 0, step = 0;
  int main_thread = 0;
  int64_t realtime_minus_monotonic = 0;
  std::vector<dist::CollectiveRecord> in_flight, recent;
  std::vector<SentGroup> groups;
  std::vector<dist::CallDigests> digests;
};
LOCKSTEP_JSON(Log, has_log, cell, step, main_thread, realtime_minus_monotonic, in_flight, recent, groups, digests)

}  // namespace

nlohmann::json log_json(const RankPicture& rank) {
  Log log{.has_log = rank.has_log,
          .cell = rank.cell,
          .step = rank.step,
          .main_thread = rank.main_thread,
          .realtime_minus_monotonic = rank.realtime_minus_monotonic,
          .in_flight = {},
          .recent = rank.recent,
          .groups = {},
          .digests = rank.digests};
  for (const dist::LoggedGroup& each : rank.groups) log.groups.push_back(sent_group(each));
  for (const RankWait& each : rank.waits) log.in_flight.push_back(each.call);
  return log;
}

void take_log_json(RankPicture& rank, const nlohmann::json& json) {
  auto log = json.get<Log>();
  rank.has_log = log.has_log;
  rank.cell = log.cell;
  rank.step = log.step;
  rank.main_thread = log.main_thread;
  rank.realtime_minus_monotonic = log.realtime_minus_monotonic;
  rank.recent = std::move(log.recent);
  rank.digests = std::move(log.digests);
  rank.groups.clear();
  for (SentGroup& each : log.groups) rank.groups.push_back(received_group(std::move(each)));
  rank.waits.clear();
  for (auto& each : log.in_flight) rank.waits.push_back({std::move(each), {}});
}

void move_times(RankPicture& rank, int64_t ahead_ns) {
  const auto move = [ahead_ns](dist::CollectiveRecord& record) {
    for (int64_t* time :
         {&record.entered_ns, &record.done_ns, &record.looked_ns, &record.reached_ns, &record.started_ns})
      if (*time != 0) *time -= ahead_ns;
  };
  for (RankWait& each : rank.waits) move(each.call);
  for (dist::CollectiveRecord& each : rank.recent) move(each);
  if (rank.realtime_minus_monotonic != 0) rank.realtime_minus_monotonic += ahead_ns;
}

}  // namespace lockstep::inspect
