// A session over a Python job: its ranks are those of the job that have stopped, and its cells are Python.
#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "protocol/error.h"
#include "shell/jobs/find_job.h"
#include "shell/session/session_state.h"

namespace lockstep::shell {
namespace {

// Ranks that stop with the first one are waited for so long; later ones join.
constexpr std::chrono::milliseconds kTogether{500};

/// Where C++ can't be compiled.
class NoObjects : public ObjectSource {
 public:
  const protocol::CompilerReady& wait_ready() override { return ready_; }
  FromCompiler ask(const protocol::CompilerRequest&) override { throw UsageError("cells of this prompt are Python"); }
  void settle(const protocol::Settle&) override {}
  int64_t definitions() const override { return 0; }
  void cancel() override {}

 private:
  protocol::CompilerReady ready_;
};

}  // namespace

void SessionCore::start_job() {
  State& s = *state_;
  s.starting = true;
  try {
    s.directory = std::make_unique<SessionDirectory>();
    s.compiler = std::make_unique<NoObjects>();
    auto job = std::make_unique<JobGroup>(s.loop, find_job(*options.job), *s.directory, listener());
    s.job = job.get();
    s.workers = std::move(job);
    s.workers->wait_connected();
    s.runner = std::make_unique<CellRunner>(s.loop, *s.compiler, *s.workers, *s.directory, options,
                                            [this](Event event) { events.take(event); });
    SessionEvent event;
    event.id = s.directory->id();
    event.ranks = RankSet::all(s.workers->world_size());
    event.backend = "Python job " + *options.job;
    for (int rank : s.workers->live()) event.devices[rank] = s.workers->rank(rank).device;
    event.is_python = true;
    event.versions = {{"lockstep", kVersion}, {"protocol", std::to_string(kProtocolVersion)}};
    if (const RankSet live = s.workers->live(); !live.empty())
      event.versions["libtorch"] = s.workers->rank(live.ranks().front()).hello.versions.libtorch;
    s.directory->describe({{"started", std::time(nullptr)},
                           {"ranks", s.workers->world_size()},
                           {"backend", "python"},
                           {"versions", event.versions},
                           {"workers", s.workers->describe()}});
    events.take(event);
    message(places_of_job());
    s.starting = false;
  } catch (...) {
    undo_start();
    throw;
  }
}

std::string SessionCore::places_of_job() const {
  return state_->job ? state_->job->places(RankSet::all(world_size())) : "";
}

std::vector<JobMember> SessionCore::members_of_job(const RankSet& ranks) const {
  return state_->job ? state_->job->members(ranks) : std::vector<JobMember>();
}

bool SessionCore::stop_job() {
  start();
  State& s = *state_;
  if (s.job->away().empty()) return true;
  if (const std::string problem = s.job->stop_between_steps(); !problem.empty()) throw UsageError(problem);
  bool interrupted = false;
  s.interrupt_command = [&] { interrupted = true; };
  s.loop.run_until([&] { return interrupted || s.job->away().empty(); });
  s.interrupt_command = nullptr;
  if (interrupted) s.job->cancel_stop();
  return !interrupted && !s.workers->live().empty();
}

void SessionCore::release_job() { state_->job->resume(live_ranks() - busy_ranks()); }

bool SessionCore::resume_job() {
  start();
  State& s = *state_;
  release_job();
  bool interrupted = false;
  s.interrupt_command = [&] { interrupted = true; };
  const auto ended = [&] { return s.workers->live().empty() && s.job->away().empty(); };
  const auto stopped = [&] { return interrupted || ended(); };
  s.loop.run_until([&] { return stopped() || !s.workers->live().empty(); });
  if (!stopped())
    s.loop.run_until([&] { return stopped() || s.job->away().empty(); }, EventLoop::Clock::now() + kTogether);
  s.interrupt_command = nullptr;
  return !s.workers->live().empty();
}

CodeResult SessionCore::run_python(std::string_view code, const CellSettings& settings, int line,
                                   const std::function<bool(const std::map<int, double>&)>& over) {
  if (!options.job)
    throw UsageError("Python cells run at a prompt over a Python job: lockstep attach (docs/python.md)");
  start();
  const RankSet ranks = settings.ranks ? *settings.ranks : target_ranks();
  check_ranks(ranks);
  RunningCell* cell = state_->cell;
  if (cell && cell->number == 0) cell->number = ++state_->last_number;
  const int64_t number = cell ? cell->number : ++state_->last_number;
  // Magics of the cell stood on blank lines.
  const nlohmann::json arguments = {
      {"text", std::string(static_cast<size_t>(std::max(0, line - 1)), '\n') + std::string(code)},
      {"number", number},
      {"own_names", settings.own_names}};
  CodeResult result;
  do result = state_->runner->run_builtin("python", arguments, ranks, number);
  while (over && result.status == CellStatus::ok && !over(result.run_ms));
  if (cell) note_result(result);
  return result;
}

}  // namespace lockstep::shell
