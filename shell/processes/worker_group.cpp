#include "shell/processes/worker_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "protocol/error.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A worker needs a fraction of a second to start; a machine that is busy, or many of them, much more.
constexpr seconds kWorkerStartLimit{60};
constexpr milliseconds kWorkerStartLimitPerRank{1000};

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

void throw_if_different(const std::string& failure, const std::string& who, const std::string& what,
                        const std::string& theirs, const std::string& ours) {
  if (theirs != ours)
    throw StartError(failure + ": " + who + " is of " + what + " " + theirs + ", and this session of " + ours +
                     ": use programs of one build (LOCKSTEP_BIN names their folder)");
}

}  // namespace

WorkerGroup::WorkerGroup(EventLoop& loop, RankPlaces places, const SessionOptions& options,
                         const SessionDirectory& directory, Listener listener)
    : PlacedGroup(std::move(places), std::move(listener), loop, directory.hub_endpoint(), count_of(places)) {
  if (options.replay)
    for (int number = 0; number < world_size(); ++number)
      if (number != options.replay->rank) at(number).info.state = State::dead;
  placed_.start(options);
}

RankSet WorkerGroup::started_ranks() const {
  RankSet ranks;
  for (int number = 0; number < world_size(); ++number)
    if (rank(number).state != State::dead) ranks.insert(number);
  return ranks;
}

void WorkerGroup::buried(int number, State before) {
  if (starting_)
    fail_start(rank_name(number) + " " + at(number).end->words + " while it started" + placed_.quoted_output(number));
  if (starting_ || ending_) return;
  if (before == State::leaving)
    listener_.left(number);
  else
    listener_.died(number, obituary(number));
}

void WorkerGroup::wait_until_all(State wanted, const std::string& what) {
  const auto behind = [&] {
    RankSet result;
    for (int r = 0; r < world_size(); ++r)
      if (rank(r).state < wanted) result.insert(r);
    return result;
  };
  const auto limit = kWorkerStartLimit + kWorkerStartLimitPerRank * world_size();
  if (serve_start([&] { return behind().empty(); }, limit, "the session could not start: ")) return;
  const RankSet missing = behind();
  const int first = missing.ranks().front();
  std::string message = "the session could not start: rank " + missing.str() + " " + what + " in " +
                        std::to_string(std::chrono::duration_cast<seconds>(limit).count()) + " s";
  const std::string quoted = placed_.place_of(first).last_lines(first);
  if (!quoted.empty()) message += "; rank " + std::to_string(first) + " wrote:\n" + quoted;
  throw StartError(message);
}

void WorkerGroup::wait_connected() { wait_until_all(State::connected, "did not connect"); }

void WorkerGroup::make_ready(const std::string& prelude, const Versions& compiler) {
  compiler_ = compiler;
  compare_versions();
  prelude_ = prelude;
  placed_.send_prelude(started_ranks(), prelude);
  wait_until_all(State::ready, "did not get ready");
  starting_ = false;
}

void WorkerGroup::prepare(int number) {
  compare_version_of(number, rank_name(number) + " could not start");
  placed_.send_prelude(RankSet{number}, prelude_);
}

void WorkerGroup::compare_versions() const {
  const std::string failure = "the session could not start";
  throw_if_different(failure, "lockstep-compiler", "protocol", std::to_string(compiler_.protocol),
                     std::to_string(kProtocolVersion));
  throw_if_different(failure, "lockstep-compiler", "version", compiler_.lockstep, kVersion);
  for (const int number : started_ranks()) compare_version_of(number, failure);
}

void WorkerGroup::compare_version_of(int number, const std::string& failure) const {
  const Versions& worker = rank(number).hello.versions;
  throw_if_different(failure, "lockstep-worker", "protocol", std::to_string(worker.protocol),
                     std::to_string(kProtocolVersion));
  throw_if_different(failure, "lockstep-worker", "version", worker.lockstep, kVersion);
  throw_if_different(failure, "the worker of " + rank_name(number), "LibTorch", worker.libtorch, compiler_.libtorch);
}

}  // namespace lockstep::shell
