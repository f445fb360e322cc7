#include "shell/jobs/job_hosts.h"

#include <fmt/format.h>

#include <algorithm>

#include "protocol/error.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kStartLimit{15};

}  // namespace

JobHosts::JobHosts(EventLoop& loop, const std::vector<Host>& hosts, const std::string& program, const std::string& hub,
                   std::function<void(const std::string&)> warning)
    : warning_(std::move(warning)) {
  using State = RemoteHost::State;
  for (const Host& each : hosts)
    hosts_.push_back(RemoteHost::start(loop, each, program, hub,
                                       {.seen =
                                            [this](const JobMember& rank) {
                                              ranks_[{rank.proxy.get(), rank.facts.pid}] = rank;
                                              if (changed) changed();
                                            },
                                        .ended =
                                            [this](const JobMember& rank, const SeenEnd& end, const inspect::Remains&) {
                                              ranks_.erase({rank.proxy.get(), rank.facts.pid});
                                              if (ended) ended(rank, end);
                                            },
                                        .changed = [this](const RemoteHost& host) { on_change(host); }}));
  loop.run_until(
      [&] { return std::ranges::none_of(hosts_, [](const auto& each) { return each->state() == State::starting; }); },
      EventLoop::Clock::now() + kStartLimit);
  if (std::ranges::none_of(hosts_, [](const auto& each) { return each->state() == State::heard; }))
    throw StartError("none of the hosts answers");
}

JobHosts::~JobHosts() {
  for (const auto& each : hosts_) each->leave();
}

std::vector<JobMember> JobHosts::ranks() const {
  std::vector<JobMember> found;
  for (const auto& [process, rank] : ranks_)
    if (!std::dynamic_pointer_cast<RemoteHost>(rank.proxy)->is_here()) found.push_back(rank);
  return found;
}

void JobHosts::on_change(const RemoteHost& host) {
  if (host.state() == RemoteHost::State::heard) {
    if (silent_.erase(&host) > 0) warning_(host.answers_again());
    return;
  }
  silent_.insert(&host);
  warning_(fmt::format("host {}: {}", host.name(), host.absence()));
  if (host.state() != RemoteHost::State::lost) return;
  std::vector<JobMember> gone;
  for (const auto& [process, rank] : ranks_)
    if (process.first == &host) gone.push_back(rank);
  for (const JobMember& each : gone) {
    ranks_.erase({each.proxy.get(), each.facts.pid});
    if (ended)
      ended(each,
            {.rank = each.facts.rank, .pid = each.facts.pid, .lost = "can't be seen any more: " + host.absence()});
  }
}

}  // namespace lockstep::shell
