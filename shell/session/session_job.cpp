// Runs a session whose ranks, and cells, are Python: those that the session starts, or those of a job that have stopped.
#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "protocol/error.h"
#include "shell/hosts/host.h"
#include "shell/jobs/find_job.h"
#include "shell/jobs/python_group.h"
#include "shell/jobs/python_ranks.h"
#include "shell/processes/compiler_service.h"
#include "shell/processes/session_plan.h"
#include "shell/session/session_state.h"

namespace lockstep::shell {
namespace {

// Ranks that stop with the first one are waited for so long; later ones join.
constexpr std::chrono::milliseconds kTogether{500};
// A rank may take so long to say which torch it has.
constexpr std::chrono::milliseconds kDescribeLimit{5000};
// It is longer than a step of a large model.
constexpr std::chrono::seconds kStepLimit{300};

}  // namespace

/// Asks the ranks of the job to come to this prompt.
SessionEvent SessionCore::open_job() {
  State& s = *state_;
  s.directory = std::make_unique<SessionDirectory>(id_);
  s.directory->describe({{"started", std::time(nullptr)}, {"ranks", 0}, {"backend", "python"}});
  auto objects = std::make_unique<JobObjects>();
  s.job_objects = objects.get();
  s.compiler = std::move(objects);
  const auto warn = [this](const std::string& text) { message(text); };
  std::unique_ptr<JobHosts> hosts;
  if (!options_.hosts.empty())
    hosts = std::make_unique<JobHosts>(s.loop, hosts_of(options_.hosts), options_.remote_program,
                                       s.directory->hub_path(), warn);
  Job found = find_job(*options_.job, hosts.get());
  const std::string id = found.id;
  auto job = std::make_unique<JobGroup>(s.loop, std::move(found), std::move(hosts), *s.directory, s.listener(warn));
  s.job = job.get();
  s.workers = std::move(job);
  s.workers->wait_connected();
  SessionEvent event;
  event.backend = "Python job " + id;
  event.is_python = event.is_job = true;
  if (const RankSet live = live_ranks(); !live.empty())
    event.versions["libtorch"] = s.workers->rank(live.ranks().front()).hello.versions.libtorch;
  return event;
}

/// Starts the ranks in the user's interpreter.
SessionEvent SessionCore::open_python() {
  State& s = *state_;
  const bool is_here = options_.is_here();
  const SessionPlan plan = is_here ? plan_session(options_) : SessionPlan();
  s.directory = std::make_unique<SessionDirectory>(id_);
  auto objects = std::make_unique<JobObjects>();
  s.job_objects = objects.get();
  s.compiler = std::move(objects);
  RankPlaces places;
  if (is_here)
    places.push_back(std::make_unique<PythonRanks>(s.loop, plan, *s.directory, s.directory->hub_path()));
  else
    places = places_elsewhere();
  auto group = std::make_unique<PythonGroup>(s.loop, std::move(places), options_, *s.directory,
                                             s.listener([this](const std::string& text) { message(text); }));
  const PythonGroup& ranks = *group;
  s.job = group.get();
  s.workers = std::move(group);
  s.workers->wait_connected();
  SessionEvent event;
  event.backend = ranks.backend();
  event.is_python = true;
  event.versions = {{"libtorch", s.workers->rank(0).hello.versions.libtorch}, {"python", ranks.interpreter()}};
  return event;
}

bool SessionCore::stop_job() {
  start();
  State& s = *state_;
  if (s.job->away().empty()) return true;
  const RankSet before = live_ranks();
  if (const std::string problem = s.job->stop_between_steps(); !problem.empty()) throw UsageError(problem);
  bool interrupted = false;
  const InterruptScope interrupts(s.interrupt_command, [&] { interrupted = true; });
  s.loop.run_until([&] { return interrupted || s.job->away().empty(); }, EventLoop::Clock::now() + kStepLimit);
  const RankSet missing = s.job->away();
  if (missing.empty()) return !s.workers->live().empty();
  const RankSet stays = s.job->take_stop_back(live_ranks() - before);
  if (!stays.empty())
    message(stays.words() + " did not go on yet: continue lets " + (stays.size() == 1 ? "it" : "them"));
  if (interrupted) return false;
  throw UsageError(fmt::format("{} did not come to the step within {} s, so all ranks go on; %stack shows where {}",
                               missing.words(), kStepLimit.count(), missing.size() == 1 ? "it is" : "they are"));
}

void SessionCore::release_job() { state_->job->resume(live_ranks() - busy_ranks()); }

bool SessionCore::resume_job() {
  start();
  State& s = *state_;
  release_job();
  bool interrupted = false;
  const InterruptScope interrupts(s.interrupt_command, [&] { interrupted = true; });
  const auto ended = [&] { return s.workers->live().empty() && s.job->members(s.job->away()).empty(); };
  const auto stopped = [&] { return interrupted || ended(); };
  s.loop.run_until([&] { return stopped() || !s.workers->live().empty(); });
  if (!stopped())
    s.loop.run_until([&] { return stopped() || s.job->away().empty(); }, EventLoop::Clock::now() + kTogether);
  return !s.workers->live().empty();
}

/// Starts the compiler of C++ cells, with the torch of `ranks`. Returns false where Ctrl-C has ended its start. Throws
/// lockstep::Error with the reason why there is none.
bool SessionCore::start_compiler_of_job(const RankSet& ranks) {
  State& s = *state_;
  if (s.job_objects->has_compiler()) return true;
  std::map<std::pair<std::string, std::string>, RankSet> folders;
  for (const auto& [rank, answer] : query(ranks, protocol::question::Cpp(), kDescribeLimit)) {
    if (const std::string problem = answer.error + answer.problem; !problem.empty())
      throw Error(fmt::format("C++ cells can't run on rank {}: {}", rank, problem));
    folders[{answer.torch, answer.headers}].insert(rank);
  }
  if (folders.empty()) throw Error("no rank answers which torch it has: C++ cells can't be compiled for it");
  if (folders.size() > 1) {
    std::string list;
    for (const auto& [folder, which] : folders)
      list += fmt::format("{}{} {}", list.empty() ? "" : ", ", which.words(), folder.first);
    throw Error("the ranks have torch in different folders, and C++ cells are compiled for one: " + list);
  }
  const ActivityReporter::Scope reporting(events_);
  const auto progress = [this](const protocol::CompilerProgress& step) { report_start_step(step); };
  const StartScope starting(s.start);
  bool interrupted = false;
  const InterruptScope interrupts(s.interrupt_command, [&] { interrupted = true; });
  try {
    s.job_objects->use(std::make_unique<CompilerService>(s.loop,
                                                         CompilerOptions{.session_directory = s.directory->path(),
                                                                         .include_dirs = options_.include_dirs,
                                                                         .memory_limit_mb = options_.compile_memory_mb,
                                                                         .torch = folders.begin()->first.first,
                                                                         .headers = folders.begin()->first.second},
                                                         progress));
    s.job->make_ready(s.job_objects->wait_ready().prelude, {});
    return true;
  } catch (const StartError& error) {
    s.job_objects->forget_compiler();
    if (interrupted) return false;
    throw Error(std::string("C++ cells can't be compiled: ") + error.what());
  }
}

bool SessionCore::start_compiler() {
  start();
  return !options_.has_python_ranks() || start_compiler_of_job(target_ranks());
}

bool SessionCore::has_compiler() const {
  return started() && (!state_->job_objects || state_->job_objects->has_compiler());
}

const RankSet& SessionCore::raised() const { return state_->raised; }

CodeResult SessionCore::run_python(std::string_view code, const CellSettings& settings, int line,
                                   const std::function<bool(const std::map<int, double>&)>& over) {
  if (!options_.has_python_ranks())
    throw UsageError("Python cells run where the ranks are Python: lockstep --python, or lockstep attach");
  start();
  const RankSet ranks = settings.ranks ? *settings.ranks : target_ranks();
  check_ranks(ranks);
  const int64_t number = take_number();
  const std::string magic = state_->cell ? state_->cell->magic : "";
  const bool is_typed = magic.ends_with(code);
  // Magics of the cell stood on blank lines.
  const protocol::function::Python python{
      .text = std::string(static_cast<size_t>(std::max(0, line - 1)), '\n') + std::string(code),
      .number = number,
      .own_names = settings.own_names,
      .shown = is_typed ? "" : magic,
      .rich = options_.shows_rich_values};
  CodeResult result;
  do result = state_->runner->run_builtin(python, ranks, number);
  while (over && result.status == CellStatus::ok && !over(result.run_ms));
  RankSet raised;
  for (const auto& [rank, status] : result.rank_status)
    if (status == CellStatus::error) raised.insert(rank);
  if (!raised.empty()) state_->raised = raised;
  if (state_->cell) note_result(result, settings);
  return result;
}

}  // namespace lockstep::shell
