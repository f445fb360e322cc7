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
  placed_.start(options);
}

void WorkerGroup::buried(int number, State) {
  if (starting_ && start_error_.empty())
    start_error_ =
        rank_name(number) + " " + at(number).end->words + " while it started" + placed_.quoted_output(number);
  if (!starting_ && !ending_) listener_.died(number, obituary(number));
}

protocol::CellError WorkerGroup::obituary(int number) const {
  const Rank& rank = at(number);
  protocol::CellError error;
  if (rank.last_words) error = *rank.last_words;
  error.root_cause = true;
  if (error.type.empty()) error.type = rank.end->signal != 0 ? signal_name(rank.end->signal) : "exit";
  if (error.message.empty()) error.message = "the process " + rank.end->words;
  error.message += rank.end->core + placed_.quoted_output(number);
  return error;
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
  placed_.send_prelude(RankSet::all(world_size()), prelude);
  wait_until_all(State::ready, "did not get ready");
  starting_ = false;
}

bool WorkerGroup::restart(int number, int64_t generation, const std::function<bool()>& interrupted) {
  // The last messages of the process before may still be on their way, or its end when it has just been killed.
  if (!wait_until_back(number, State::dead, interrupted)) return false;
  placed_.restart(number, generation);
  Rank& rank = at(number);
  const RankInfo before = std::exchange(rank.info, RankInfo());
  rank.info.pid = placed_.pid(number);
  rank.info.device = before.device;
  rank.end.reset();
  rank.received = {};
  rank.last_words.reset();
  if (!wait_until_back(number, State::connected, interrupted)) return false;
  compare_version_of(number, rank_name(number) + " could not start again");
  placed_.send_prelude(RankSet{number}, prelude_);
  return wait_until_back(number, State::ready, interrupted);
}

/// Returns false where it was interrupted. Throws StartError where the rank does not come that far.
bool WorkerGroup::wait_until_back(int number, State wanted, const std::function<bool()>& interrupted) {
  const State& state = at(number).info.state;
  const auto limit = kWorkerStartLimit;
  if (!loop_.run_until([&] { return state >= wanted || interrupted(); }, EventLoop::Clock::now() + limit))
    throw StartError(fmt::format("{} did not {} within {} s and {} ended", rank_name(number),
                                 wanted == State::dead ? "end" : "get ready", limit.count(),
                                 wanted == State::dead ? "can't be" : "was"));
  if (state == State::dead && wanted != State::dead)
    throw StartError(rank_name(number) + " could not start again: " + obituary(number).message);
  return state >= wanted;
}

void WorkerGroup::compare_versions() const {
  const std::string failure = "the session could not start";
  throw_if_different(failure, "lockstep-compiler", "protocol", std::to_string(compiler_.protocol),
                     std::to_string(kProtocolVersion));
  throw_if_different(failure, "lockstep-compiler", "version", compiler_.lockstep, kVersion);
  for (int r = 0; r < world_size(); ++r) compare_version_of(r, failure);
}

void WorkerGroup::compare_version_of(int number, const std::string& failure) const {
  const Versions& worker = rank(number).hello.versions;
  throw_if_different(failure, "lockstep-worker", "protocol", std::to_string(worker.protocol),
                     std::to_string(kProtocolVersion));
  throw_if_different(failure, "lockstep-worker", "version", worker.lockstep, kVersion);
  throw_if_different(failure, "the worker of " + rank_name(number), "LibTorch", worker.libtorch, compiler_.libtorch);
}

}  // namespace lockstep::shell
