#include "shell/jobs/rank_watch.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep::shell {
RankWatch::RankWatch(EventLoop& loop, std::function<std::vector<JobMember>()> read, Listener listener)
    : loop_(loop), read_(std::move(read)), listener_(std::move(listener)) {}

RankWatch::~RankWatch() {
  for (const auto& [pid, each] : watched_) loop_.forget(each.pidfd.get());
}

void RankWatch::look() {
  for (JobMember& each : read_()) {
    const int64_t pid = each.facts.pid;
    if (const auto known = watched_.find(pid); known != watched_.end()) {
      const bool is_new = nlohmann::json(known->second.member.facts) != nlohmann::json(each.facts);
      known->second.member = each;
      if (is_new) listener_.changed(each);
      continue;
    }
    // A rank may end within milliseconds: its parent has not asked for its end then.
    if (wait_status_of_zombie(pid, each.facts.start_time)) {
      if (!ended_.insert({pid, each.facts.start_time}).second) continue;
      listener_.came(each);
      report_end(each);
      continue;
    }
    if (!each.is_alive) continue;
    Descriptor pidfd = open_process(static_cast<pid_t>(pid));
    if (!pidfd) continue;  // it has just ended
    const int fd = pidfd.get();
    loop_.watch(fd, [this, pid] { end(pid); });
    watched_.emplace(pid, Watched{each, std::move(pidfd)});
    listener_.came(each);
  }
}

void RankWatch::end(int64_t pid) {
  const auto found = watched_.find(pid);
  if (found == watched_.end()) return;
  loop_.forget(found->second.pidfd.get());
  const JobMember member = std::move(found->second.member);
  watched_.erase(found);
  report_end(member);
}

void RankWatch::report_end(const JobMember& member) {
  const int64_t pid = member.facts.pid;
  ended_.insert({pid, member.facts.start_time});
  SeenEnd end{.rank = member.facts.rank,
              .pid = pid,
              .wait_status = wait_status_of_zombie(pid),
              .time_s = std::time(nullptr),
              .seen_ns = realtime_ns()};
  const std::vector<JobMember> members = read_();
  const auto said = std::ranges::find_if(members, [&](const JobMember& each) { return each.facts.pid == pid; });
  if (said != members.end()) end.said = said->facts.end;
  end.note(memory_kills_.rise());
  listener_.ended(member, std::move(end));
}

}  // namespace lockstep::shell
