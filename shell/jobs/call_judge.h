// Compares what ranks on different machines call, a few milliseconds after they have called it, and tells the ranks of
// a group of calls that differ: they raise then what ranks of one machine raise, which compare their calls themselves.
//
// It rests on signatures, which relays send (call_watch.h). Where two differ, the logs are asked for the calls, and
// ranks hear of it only if these differ, too.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "collectives/log/call_mismatch.h"
#include "protocol/rank_set.h"
#include "shell/jobs/agent_client.h"
#include "shell/jobs/call_watch.h"
#include "shell/jobs/job_folder.h"
#include "shell/processes/call_table.h"
#include "shell/processes/deadline.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell {

class CallJudge {
 public:
  /// `ranks` returns those that run, on all machines.
  CallJudge(EventLoop& loop, std::function<std::vector<JobMember>()> ranks)
      : loop_(loop), ranks_(std::move(ranks)), watch_(loop, [this](const auto& calls) { take(calls); }) {}

  /// Reads what ranks of this machine call.
  CallWatch& watch() { return watch_; }
  /// Takes what ranks of another machine have called.
  void take(const std::vector<dist::NewCall>& calls);

  /// Whether ranks have been told of a mismatch a moment ago, with which they are about to fail.
  bool has_told_lately() const;

 private:
  struct Difference {
    uint64_t incarnation = 0;
    int64_t seq = 0;
    EventLoop::Clock::time_point found_at;
    std::optional<dist::CollectiveMismatch> mismatch;  // once it is known
    std::vector<JobMember> untold;  // then: who has not answered yet
    bool is_over = false;  // nobody looks into it any more
  };
  void look(Difference& difference);
  void find_mismatch(Difference& difference);
  /// Returns what the logs of `ranks` say of the call.
  std::map<int, dist::FoundCall> ask(const std::vector<JobMember>& ranks, const Difference& about, size_t recent,
                                     RankSet* members = nullptr) const;
  void tell(Difference& difference);

  EventLoop& loop_;
  const std::function<std::vector<JobMember>()> ranks_;
  CallWatch watch_;
  CallTable table_;
  std::map<uint64_t, std::pair<Difference, std::unique_ptr<Deadline>>> differing_;  // by incarnation
  std::optional<EventLoop::Clock::time_point> told_at_;
};

}  // namespace lockstep::shell
