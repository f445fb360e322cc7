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
  compare_versions(compiler);
  prelude_ = prelude;
  placed_.send_prelude(RankSet::all(world_size()), prelude);
  wait_until_all(State::ready, "did not get ready");
  starting_ = false;
}

void WorkerGroup::restart(int number, int64_t generation) {
  placed_.restart(number, generation);
  Rank& rank = at(number);
  const RankInfo before = std::exchange(rank.info, RankInfo());
  rank.info.pid = placed_.pid(number);
  rank.info.device = before.device;
  rank.end.reset();
  rank.received = {};
  rank.last_words.reset();
  wait_until_back(number, State::connected);
  placed_.send_prelude(RankSet{number}, prelude_);
  wait_until_back(number, State::ready);
}

void WorkerGroup::wait_until_back(int number, State wanted) {
  const Rank& rank = at(number);
  const auto limit = kWorkerStartLimit;
  const bool in_time = loop_.run_until([&] { return rank.info.state >= wanted; }, EventLoop::Clock::now() + limit);
  if (!in_time) {
    kill(number);
    throw StartError(fmt::format("{} did not get ready within {} s and was ended", rank_name(number), limit.count()));
  }
  if (rank.info.state != State::dead) return;
  throw StartError(rank_name(number) + " could not start again: " + obituary(number).message);
}

void WorkerGroup::compare_versions(const Versions& compiler) const {
  const auto differ = [](const std::string& who, const std::string& what, const std::string& theirs,
                         const std::string& ours) {
    if (theirs != ours)
      throw StartError("the session could not start: " + who + " is of " + what + " " + theirs +
                       ", and this session of " + ours +
                       ": use programs of one build (LOCKSTEP_BIN names their folder)");
  };
  differ("lockstep-compiler", "protocol", std::to_string(compiler.protocol), std::to_string(kProtocolVersion));
  differ("lockstep-compiler", "version", compiler.lockstep, kVersion);
  for (int r = 0; r < world_size(); ++r) {
    const Versions& worker = rank(r).hello.versions;
    differ("lockstep-worker", "protocol", std::to_string(worker.protocol), std::to_string(kProtocolVersion));
    differ("lockstep-worker", "version", worker.lockstep, kVersion);
    differ("the worker of " + rank_name(r), "LibTorch", worker.libtorch, compiler.libtorch);
  }
}

}  // namespace lockstep::shell
