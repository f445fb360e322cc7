#include "shell/jobs/python_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "protocol/error.h"
#include "shell/jobs/python_ranks.h"
#include "shell/jobs/remote_ranks.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

using std::chrono::seconds;

// Importing torch from a cold disk, or over a network, takes long.
constexpr seconds kStartLimit{180};
constexpr seconds kStartLimitPerRank{1};

/// The ranks here are a job of their own.
Job job_of(const RankPlaces& places) {
  for (const auto& each : places)
    if (const auto* const here = dynamic_cast<const PythonRanks*>(each.get())) return read_job(here->job_folder());
  return {};
}

}  // namespace

PythonGroup::PythonGroup(EventLoop& loop, RankPlaces places, const SessionOptions& options, SessionDirectory& directory,
                         Listener listener)
    : PlacedGroup(std::move(places), std::move(listener), loop, job_of(places), count_of(places), /*hosts=*/nullptr,
                  directory) {
  for (const auto& each : placed_.places())
    if (auto* const remote = dynamic_cast<RemoteRanks*>(each.get()))
      remote->members_changed = [this] { look_for_ranks(); };
  placed_.start(options);
}

void PythonGroup::add_elsewhere(std::vector<Job>& jobs) const {
  for (const auto& each : placed_.places())
    if (const auto* const remote = dynamic_cast<const RemoteRanks*>(each.get()))
      std::ranges::move(remote->members(), std::back_inserter(jobs.front().ranks));
}

void PythonGroup::wait_connected() {
  const auto behind = [this] {
    RankSet result;
    for (int each = 0; each < world_size(); ++each)
      if (rank(each).state < State::ready) result.insert(each);
    return result;
  };
  const auto limit = kStartLimit + kStartLimitPerRank * world_size();
  if (!serve_start([&] { return behind().empty(); }, limit, "the session could not start: "))
    throw StartError(fmt::format("the session could not start: {} did not connect in {} s{}", behind().words(),
                                 limit.count(), placed_.quoted_output(behind().ranks().front())));
  starting_ = false;
}

void PythonGroup::disconnected(int number) {
  if (rank(number).state == State::ready && !ending_) JobGroup::disconnected(number);
}

void PythonGroup::buried(int number, State before) {
  const auto& end = at(number).end;
  if (!end) return kill(number);  // its connection has ended, and with it what it is there for
  fail_start(fmt::format("rank {} {} while it started{}", number, end->words, placed_.quoted_output(number)));
  if (starting_ || ending_) return;
  if (before == State::leaving)
    listener_.left(number);
  else
    listener_.died(number, obituary(number));
}

}  // namespace lockstep::shell
