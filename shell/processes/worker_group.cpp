#include "shell/processes/worker_group.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "protocol/error.h"
#include "shell/processes/random_key.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A worker needs a fraction of a second to start; a machine that is busy, or many of them, much more.
constexpr seconds kWorkerStartLimit{60};
constexpr milliseconds kWorkerStartLimitPerRank{1000};

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

WorkerGroup::WorkerGroup(EventLoop& loop, const SessionPlan& plan, const SessionOptions& options,
                         SessionDirectory& directory, Listener listener)
    : RankGroup(loop, directory.hub_endpoint(), plan.world_size, std::move(listener)),
      plan_(plan),
      rehearsal_(options.rehearsal),
      directory_(directory),
      processes_(static_cast<size_t>(plan.world_size)) {
  lifeline_ = make_pipe();
  store_key_ = random_key();
  try {
    store_ = std::make_unique<StoreProcess>(
        loop_, rehearsal_ ? rehearsal_launch(*rehearsal_) : worker_launch(), directory_,
        [this](const std::string& how, const std::string& last_lines) {
          if (starting_)
            start_error_ = "the store's process " + how + "\n" + last_lines;
          else if (!ending_)
            listener_.store_ended(how + (last_lines.empty() ? "" : " (" + last_lines.substr(2) + ")"));
        });
    for (int rank = 0; rank < plan_.world_size; ++rank) start_rank(rank, options);
  } catch (...) {  // the destructor does not run for what is half made
    stop_watching();
    throw;
  }
}

WorkerGroup::~WorkerGroup() {
  ending_ = true;
  stop_watching();
  for (Process& each : processes_) each.child->kill();
  processes_.clear();
}

void WorkerGroup::stop_watching() {
  for (const Process& each : processes_)
    if (each.tail) loop_.forget(each.tail->fd());
}

void WorkerGroup::start_rank(int number, const SessionOptions& options) {
  Process& process = processes_[static_cast<size_t>(number)];
  directory_.add_rank(number);
  const std::string size = std::to_string(plan_.world_size), index = std::to_string(number);
  process.tail = std::make_unique<OutputTail>();
  LastOutput& output = *(at(number).output = std::make_unique<LastOutput>());
  Launch launch = rehearsal_ ? rehearsal_launch(*rehearsal_) : worker_launch();
  launch.environment.insert({{"LOCKSTEP_RANK", index},
                             {"LOCKSTEP_IDENTITY", hub_.expect(number)},
                             {"LOCKSTEP_OUTPUT_FDS", output.environment()},
                             {"LOCKSTEP_WORLD_SIZE", size},
                             {"LOCKSTEP_LOCAL_RANK", index},
                             {"LOCKSTEP_LOCAL_WORLD_SIZE", size},
                             {"LOCKSTEP_NODE_RANK", "0"},
                             {"LOCKSTEP_SESSION_DIR", directory_.path()},
                             {"LOCKSTEP_HUB", directory_.hub_endpoint()},
                             {"LOCKSTEP_STORE", store_->address()},
                             {"LOCKSTEP_STORE_KEY", store_key_},
                             {"LOCKSTEP_BACKEND", plan_.backend},
                             {"LOCKSTEP_THREADS", std::to_string(plan_.threads)},
                             {"LOCKSTEP_CHECK_COLLECTIVES", options.check_collectives ? "1" : "0"},
                             {"LOCKSTEP_LIFELINE_FD", std::to_string(lifeline_.read.get())},
                             {"LOCKSTEP_ARGUMENTS", nlohmann::json(options.arguments).dump()}});
  launch.environment.merge(device_environment(plan_, number));
  launch.inherit = output.descriptors();
  launch.inherit.push_back(lifeline_.read.get());
  launch.output = process.tail->write_end();
  process.child = std::make_unique<Child>(launch);
  process.tail->close_write_end();
  output.close_writing_ends();
  const Child& child = *process.child;
  at(number).info.device = plan_.devices[static_cast<size_t>(number)];
  store_->rank_has_started(child.pid());
  OutputTail& tail = *process.tail;
  loop_.watch(tail.fd(), [this, &tail] {
    if (!tail.take()) loop_.forget(tail.fd());
  });
  watch_process(number, child.pid(), child.pidfd());
}

std::optional<RankGroup::End> WorkerGroup::take_end(int number) {
  const auto end = process(number).child->ended();
  if (!end) return std::nullopt;
  // Its group is gone with it. What left the group goes, too; at the session's end all of them at once.
  store_->rank_has_ended(number, rank(number).pid, ending_);
  return End{end->str(), end->signal};
}

void WorkerGroup::give_up(int number, const std::string& why) {
  const std::string what = "it sent the session what can't be read: " + why;
  if (starting_) {
    start_error_ = rank_name(number) + ": " + what;
  } else if (auto& last_words = at(number).last_words; !last_words) {
    last_words.emplace();
    last_words->type = "protocol_error";
    last_words->message = what + "; its process was ended";
    kill(number);
  }
}

void WorkerGroup::buried(int number, State) {
  if (starting_ && start_error_.empty())
    start_error_ = rank_name(number) + " " + at(number).end->words + " while it started" + quoted_output(number);
  if (!starting_ && !ending_) listener_.died(number, obituary(number));
}

/// "; it wrote:" and the last lines of what the process of a rank wrote; empty where it wrote nothing.
std::string WorkerGroup::quoted_output(int number) const {
  const std::string lines = process(number).tail->last_lines();
  return lines.empty() ? "" : "; it wrote:\n" + lines;
}

protocol::CellError WorkerGroup::obituary(int number) const {
  const Rank& rank = at(number);
  protocol::CellError error;
  if (rank.last_words) error = *rank.last_words;
  error.root_cause = true;
  if (error.type.empty()) error.type = rank.end->signal != 0 ? signal_name(rank.end->signal) : "exit";
  if (error.message.empty()) error.message = "the process " + rank.end->words;
  error.message += quoted_output(number);
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
  const std::string quoted = process(first).tail->last_lines();
  if (!quoted.empty()) message += "; rank " + std::to_string(first) + " wrote:\n" + quoted;
  throw StartError(message);
}

void WorkerGroup::wait_connected() { wait_until_all(State::connected, "did not connect"); }

void WorkerGroup::make_ready(const std::string& prelude, const Versions& compiler) {
  compare_versions(compiler);
  hub_.send(RankSet::all(world_size()), protocol::Prelude{prelude});
  wait_until_all(State::ready, "did not get ready");
  starting_ = false;
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

void WorkerGroup::kill(int rank) { process(rank).child->kill(); }

nlohmann::json WorkerGroup::describe() const {
  nlohmann::json workers = nlohmann::json::array();
  for (int r = 0; r < world_size(); ++r)
    workers.push_back({{"rank", r}, {"pid", rank(r).pid}, {"start_time", process(r).child->start_time()}});
  return workers;
}

}  // namespace lockstep::shell
