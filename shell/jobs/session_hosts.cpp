#include "shell/jobs/session_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "protocol/error.h"
#include "shell/jobs/remote_ranks.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kHostsWaitUnseen{8};
constexpr double kHostsStartLimit_s = 30;

using State = RemoteHost::State;

/// Returns how many ranks each host gets.
std::vector<int> spread(const std::vector<std::unique_ptr<RemoteRanks>>& hosts, const SessionOptions& options) {
  std::vector<int> counts;
  int gpus = 0;
  for (const auto& each : hosts) {
    counts.push_back(each->machine().gpus());
    gpus += counts.back();
  }
  const int size = static_cast<int>(hosts.size());
  if (!options.num_processes && gpus > 0) {
    for (int i = 0; i < size; ++i)
      if (counts[static_cast<size_t>(i)] == 0)
        throw UsageError(
            fmt::format("host {} has no GPU that sessions can use, and others have: leave it out, or say "
                        "how many ranks there are with -n",
                        hosts[static_cast<size_t>(i)]->host()));
    return counts;
  }
  const int ranks = options.num_processes.value_or(std::max(2, size));
  if (ranks < size)
    throw UsageError(fmt::format(
        "-n {}: there are {} hosts, and each has at least one rank; --hosts none starts ranks on this machine alone",
        ranks, size));
  for (int i = 0; i < size; ++i) counts[static_cast<size_t>(i)] = ranks / size + (i < ranks % size ? 1 : 0);
  return counts;
}

}  // namespace

std::string differing_processors(const std::vector<const RemoteHost*>& machines) {
  std::map<std::string, std::set<std::string>> hosts;  // by processor
  for (const RemoteHost* each : machines)
    if (!each->processor().empty()) hosts[each->processor()].insert(each->name());
  if (hosts.size() < 2) return "";
  std::string text;
  for (const auto& [processor, names] : hosts)
    text += fmt::format("{}{} {} {}", text.empty() ? "" : "; ", fmt::join(names, ", "),
                        names.size() == 1 ? "has" : "have", processor);
  return "the hosts have processors of different kinds, for which LibTorch may choose other kernels: the same sum may "
         "have other last digits on them (" +
         text + ")";
}

void choose_hosts(SessionOptions& options) {
  if (options.hosts == "none") {
    options.hosts.clear();
  } else if (options.is_here()) {
    const auto place = slurm_place();
    if (place && !place->is_task) options.hosts = "slurm:" + place->job;
  }
  if (!options.hosts.empty() && (!options.ticket.empty() || !options.launch.empty()))
    throw UsageError(
        "--hosts starts the ranks through ssh, --ticket and --launch through a launcher: give one of them");
  if (options.is_here() && !options.remote_program.empty())
    throw UsageError("--remote-program is the path of lockstep on other machines, which --hosts names");
  if (options.is_here() && options.start_timeout_s)
    throw UsageError("--start-timeout is for ranks on other machines: --hosts, --ticket, --launch or --ray");
  if (!options.is_here() && options.remote_program.empty()) options.remote_program = find_program("lockstep");
}

RankPlaces places_on_hosts(EventLoop& loop, const SessionOptions& options, const std::string& hub,
                           const bool& interrupted, const std::function<void(const std::string&)>& says) {
  if (!options.gpu_ids.empty())
    throw UsageError(
        "--gpu-ids names GPUs of one machine: on other hosts CUDA_VISIBLE_DEVICES in their environment chooses GPUs");
  std::vector<std::unique_ptr<RemoteRanks>> hosts;
  for (const Host& each : hosts_of(options.hosts))
    hosts.push_back(std::make_unique<RemoteRanks>(loop, each, options.remote_program, hub));
  const auto is_starting = [](const auto& each) { return each->machine().state() == State::starting; };
  const auto are_there = [&] { return interrupted || std::ranges::none_of(hosts, is_starting); };
  const auto begin = EventLoop::Clock::now();
  const auto limit =
      std::chrono::milliseconds(std::llround(1000 * options.start_timeout_s.value_or(kHostsStartLimit_s)));
  if (!loop.run_until(are_there, begin + std::min<std::chrono::milliseconds>(kHostsWaitUnseen, limit))) {
    for (const auto& each : hosts)
      if (is_starting(each)) says(fmt::format("host {}: {}", each->host(), each->machine().absence()));
    loop.run_until(are_there, begin + limit);
  }
  if (interrupted) throw StartError("the session could not start: interrupted");
  std::string absent;
  for (const auto& each : hosts)
    if (each->machine().state() != State::heard)
      absent += fmt::format("{}host {}: {}", absent.empty() ? "" : "; ", each->host(), each->machine().absence());
  if (!absent.empty()) throw StartError("the session could not start: " + absent);
  std::vector<const RemoteHost*> machines;
  for (const auto& each : hosts) machines.push_back(&each->machine());
  if (const std::string text = differing_processors(machines); !text.empty()) says(text);
  const std::vector<int> counts = spread(hosts, options);
  RankPlaces places;
  for (size_t i = 0; i < hosts.size(); ++i) {
    hosts[i]->give(counts[i]);
    places.push_back(std::move(hosts[i]));
  }
  return places;
}

}  // namespace lockstep::shell
