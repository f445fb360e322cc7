#include "shell/session/session_core.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "shell/processes/compiler_service.h"
#include "shell/processes/gpu_lookup.h"
#include "shell/processes/session_plan.h"
#include "shell/processes/stack_limit.h"
#include "shell/processes/thread_limit.h"
#include "shell/processes/worker_group.h"
#include "shell/session/session_state.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kInterruptLimit{2};

}  // namespace

SessionCore::SessionCore(SessionOptions session_options, EventSink& sink)
    : options(std::move(session_options)), events(sink), state_(std::make_unique<State>()) {
  set_nonblocking(state_->signals.read.get());
  set_nonblocking(state_->signals.write.get());
  std::error_code error;
  directory = std::filesystem::current_path(error).string();
  state_->loop.watch(state_->signals.read.get(), [this] {
    char bytes[16];
    const auto n = ::read(state_->signals.read.get(), bytes, sizeof bytes);
    for (int i = 0; i < n; ++i) take_asked(static_cast<Asked>(bytes[i]));
  });
  if (options.reports_activity) events.start(state_->loop, [this] { return activity(); });
}

void SessionCore::take_asked(Asked what) {
  const State& s = *state_;
  if (s.runner && what == Asked::leave) s.runner->leave();
  if (s.runner && what == Asked::interrupt) s.runner->user_interrupt();
  if (s.interrupt_command) s.interrupt_command();
  if (s.compiler) s.compiler->cancel();
  if (s.starting && s.workers) s.workers->cancel_start("interrupted");
}

SessionCore::~SessionCore() {
  shutdown();
  events.stop();
}

void SessionCore::ask_from_signal(Asked what) noexcept {
  const char byte = static_cast<char>(what);
  (void)!::write(state_->signals.write.get(), &byte, 1);
}

// ---- Start and end --------------------------------------------------------------------------------------------------

RankGroup::Listener SessionCore::listener() {
  State& s = *state_;
  return {.message =
              [&s](FromWorker& from) {
                if (s.runner) s.runner->message(from);
              },
          .last_output =
              [&s](int rank, Stream stream, std::string bytes) {
                if (s.runner) s.runner->last_output(rank, stream, std::move(bytes));
              },
          .warning = [this](const std::string& text) { message(text); },
          .died =
              [&s](int rank, const protocol::CellError& error) {
                if (s.runner) s.runner->died(rank, error);
              },
          .store_ended =
              [&s](const std::string& how) {
                if (s.runner) s.runner->store_ended(how);
              }};
}

void SessionCore::start(bool is_asked) {
  if (started()) return;
  if (options.job) return start_job();
  const SessionPlan plan = plan_session(options);
  (void)working_directory();
  State& s = *state_;
  const ActivityReporter::Scope reporting(events);
  s.starting = true;
  s.starting_since = EventLoop::Clock::now();
  s.start_step.reset();
  try {
    // A rank has 7 threads when it is connected; the store, the compiler and this process have 8 between them.
    require_threads(8 + 7 * plan.world_size, fmt::format("the session could not start: a session of {} rank{}",
                                                         plan.world_size, plan.world_size == 1 ? "" : "s"));
    s.directory = std::make_unique<SessionDirectory>();
    const CompilerOptions compiler{s.directory->path(), options.include_dirs, options.compile_memory_mb};
    const auto progress = [this](const protocol::CompilerProgress& step) { report_start_step(step); };
    s.compiler = options.objects ? options.objects(s.loop, compiler, progress)
                                 : std::make_unique<CompilerService>(s.loop, compiler, progress);
    s.workers = std::make_unique<WorkerGroup>(s.loop, plan, options, *s.directory, listener());
    const auto& ready = s.compiler->wait_ready();
    s.workers->wait_connected();
    s.workers->make_ready(ready.prelude, ready.versions);
    s.runner =
        std::make_unique<CellRunner>(s.loop, *s.compiler, *s.workers, *s.directory, options, [this](Event event) {
          auto* value = std::get_if<ValueEvent>(&event);
          if (value && state_->captured_values)
            state_->captured_values->push_back(std::move(*value));
          else
            events.take(event);
        });
    SessionEvent event;
    event.id = s.directory->id();
    event.ranks = s.workers->live();
    event.backend = plan.backend;
    event.is_asked = is_asked;
    for (int rank : event.ranks) event.devices[rank] = s.workers->rank(rank).device;
    event.versions = {{"lockstep", kVersion},
                      {"protocol", std::to_string(kProtocolVersion)},
                      {"libtorch", ready.versions.libtorch},
                      {"compiler", ready.versions.compiler}};
    s.directory->describe({{"started", std::time(nullptr)},
                           {"ranks", plan.world_size},
                           {"backend", plan.backend},
                           {"versions", event.versions},
                           {"workers", s.workers->describe()}});
    if (!s.configuration.environment.empty() || s.configuration.directory)
      s.workers->hub().send(event.ranks, s.configuration);
    events.take(event);
    if (const std::string shortage = stack_shortage(); !shortage.empty()) message(shortage);
    s.starting = false;
  } catch (const StartError& error) {
    undo_start();
    const std::string shortage = stack_shortage();
    if (shortage.empty()) throw;
    throw StartError(error.what() + ("\n" + shortage));
  } catch (...) {
    undo_start();
    throw;
  }
}

/// What takes long at the start, for people and for the display of the activity.
void SessionCore::report_start_step(const protocol::CompilerProgress& step) {
  state_->start_step = step.step;
  state_->start_step_since = EventLoop::Clock::now();
  if (step.message.empty()) return;
  const bool is_known = step.step && step.step->last_s;
  message(step.message + (is_known ? fmt::format("; the last time it took {:.0f} s", *step.step->last_s) : ""));
}

/// A start that went wrong: nothing that was started stays.
void SessionCore::undo_start() {
  State& s = *state_;
  s.starting = false;
  s.runner.reset();
  s.job = nullptr;
  s.job_objects = nullptr;
  s.workers.reset();
  s.compiler.reset();
  s.directory.reset();
}

void SessionCore::shutdown() {
  State& s = *state_;
  if (s.workers) s.workers->shutdown();
  before_each_cell = nullptr;
  if (s.runner) s.runner->end_open_loops();
  s.runner.reset();
  s.job = nullptr;
  s.job_objects = nullptr;
  s.workers.reset();
  s.compiler.reset();
  s.directory.reset();
}

/// For a display, about once a second: asks nobody.
std::optional<ActivityEvent> SessionCore::activity() const {
  const State& s = *state_;
  if (!s.starting && !s.starting_compiler) return s.runner ? s.runner->activity() : std::nullopt;
  const auto seconds_since = [](EventLoop::Clock::time_point begin) {
    return std::chrono::duration<double>(EventLoop::Clock::now() - begin).count();
  };
  ActivityEvent event{.phase = ActivityEvent::Phase::starting, .elapsed_s = seconds_since(s.starting_since)};
  event.step = s.start_step;
  if (event.step) event.step_s = seconds_since(s.start_step_since);
  std::map<RankInfo::State, RankSet> ranks;
  for (int rank = 0; rank < world_size(); ++rank) ranks[s.workers->rank(rank).state].insert(rank);
  for (const auto& [state, which] : ranks)
    event.parts.push_back({.ranks = which,
                           .state = state == RankInfo::State::starting    ? "starting"
                                    : state == RankInfo::State::connected ? "connected"
                                    : state == RankInfo::State::ready     ? "ready"
                                                                          : "dead"});
  return event;
}

bool SessionCore::started() const { return state_->runner != nullptr; }

int SessionCore::world_size() const { return state_->workers ? state_->workers->world_size() : 0; }

RankSet SessionCore::live_ranks() const { return state_->workers ? state_->workers->live() : RankSet(); }

RankSet SessionCore::away_ranks() const { return state_->job ? state_->job->away() : RankSet(); }

RankSet SessionCore::dead_ranks() const { return RankSet::all(world_size()) - live_ranks(); }

RankSet SessionCore::target_ranks() {
  start();
  const RankSet live = live_ranks();
  if (target) return *target & live;
  if (distributed || live.empty()) return live;
  return RankSet{live.ranks().front()};
}

std::string SessionCore::target_words() {
  if (!started()) return "";
  if (live_ranks().empty()) return options.job ? "no rank" : "all ranks dead";
  const RankSet ranks = target_ranks();
  return ranks.empty() ? target->words() + " dead" : ranks.words();
}

RankSet SessionCore::parse_ranks(std::string_view spec) {
  start();
  return parse_rank_set(spec, world_size());
}

int64_t SessionCore::next_number() const { return state_->last_number + 1; }

void SessionCore::set_next_number(int64_t number) { state_->last_number = number - 1; }

EventLoop& SessionCore::loop() { return state_->loop; }

Language SessionCore::language_of_cell() const {
  return state_->cell ? state_->cell->settings.language.value_or(language()) : language();
}

int64_t SessionCore::current_number() const { return state_->cell ? state_->cell->number : 0; }

// ---- What magics use ------------------------------------------------------------------------------------------------

void SessionCore::message(std::string text, nlohmann::json data) {
  events.take(MessageEvent{state_->cell ? state_->cell->number : 0, std::move(text), std::move(data)});
}

void SessionCore::help(std::string text, nlohmann::json data) {
  events.take(
      MessageEvent{state_->cell ? state_->cell->number : 0, std::move(text), std::move(data), /*is_help=*/true});
}

void SessionCore::check_alive(const RankSet& ranks) const {
  if (live_ranks().empty() && options.job)
    throw UsageError(
        state_->job->away().empty()
            ? "all ranks have ended: where the launcher starts them again, `lockstep attach` finds the new ones"
            : "no rank is at a breakpoint: continue waits until one is");
  if (live_ranks().empty()) throw UsageError("all ranks are dead: %dist_reset starts the session afresh");
  if (options.job) {
    for (const int rank : ranks - live_ranks())
      throw UsageError(fmt::format("rank {} {}: {}", rank, state_->workers->absence(rank),
                                   live_ranks().empty() ? "continue waits until ranks stop"
                                                        : "name ranks that have stopped (" + live_ranks().str() + ")"));
  }
  if (const RankSet dead = ranks & dead_ranks(); !dead.empty())
    throw UsageError(dead.words() + (dead.size() == 1 ? " is" : " are") + " dead: name other ranks (" +
                     live_ranks().str() + " live), or start afresh with %dist_reset");
  if (ranks.empty()) throw UsageError("no live rank is meant: " + live_ranks().words() + " can be named");
}

void SessionCore::check_ranks(const RankSet& ranks) const {
  check_alive(ranks);
  const RankSet busy = ranks & state_->runner->busy();
  if (busy.empty()) return;
  const int first = busy.ranks().front();
  const std::string wait = state_->runner->wait_of(first);
  throw UsageError(
      fmt::format("rank {} is still in cell {}{}: %abort frees it, or a cell on other ranks ({}) may join it", first,
                  state_->runner->cell_of(first), wait.empty() ? "" : ", waiting in " + wait,
                  (live_ranks() - state_->runner->busy()).str()));
}

CodeResult SessionCore::run_code(std::string_view code, const CellSettings& settings, int line,
                                 const std::function<bool(const std::map<int, double>&)>& over) {
  if (settings.language.value_or(language()) == Language::python) return run_python(code, settings, line, over);
  start();
  CellRequest request;
  request.ranks = settings.ranks ? *settings.ranks : target_ranks();
  check_ranks(request.ranks);
  if (options.job && !start_compiler_of_job(request.ranks)) {
    if (state_->cell) state_->cell->status = CellStatus::interrupted;
    CodeResult interrupted;
    interrupted.status = CellStatus::interrupted;
    return interrupted;
  }
  RunningCell* cell = state_->cell;
  if (cell && cell->number == 0) cell->number = ++state_->last_number;
  request.number = cell ? cell->number : ++state_->last_number;
  request.text = std::string(static_cast<size_t>(std::max(0, line - 1)), '\n') + std::string(code);
  request.optimize = settings.optimize.value_or(0);
  request.debug = settings.debug || options.debug_cells;
  request.directory = directory;
  if (cell) {
    request.title = cell->title;
    request.whole_text = cell->text;
  }
  CodeResult result = state_->runner->run(request, over);
  compiler_messages = result.compiler_messages;
  if (cell) note_result(result);
  return result;
}

CodeResult SessionCore::run_capturing(std::string_view code, const CellSettings& settings, int line,
                                      std::vector<ValueEvent>& values) {
  struct Capture {
    explicit Capture(State& session, std::vector<ValueEvent>& taken) : state(session) {
      state.captured_values = &taken;
    }
    ~Capture() { state.captured_values = nullptr; }
    State& state;
  } const capture(*state_, values);
  return run_code(code, settings, line);
}

CodeResult SessionCore::run_builtin(const std::string& name, const nlohmann::json& arguments, const RankSet& ranks) {
  start();
  check_ranks(ranks);
  RunningCell* cell = state_->cell;
  CodeResult result = state_->runner->run_builtin(name, arguments, ranks, cell ? cell->number : 0);
  if (cell && cell->status == CellStatus::ok) cell->status = result.status;
  return result;
}

/// Adds what a part of the running cell did to the cell's event.
void SessionCore::note_result(const CodeResult& result) {
  RunningCell& cell = *state_->cell;
  cell.event.ranks = cell.event.ranks | result.ranks;
  cell.event.compile_ms += result.compile_ms;
  for (const auto& [rank, ms] : result.run_ms) cell.event.run_ms[rank] += ms;
  for (const auto& [rank, status] : result.rank_status) {
    CellStatus& known = cell.event.rank_status[rank];  // a new one is ok
    if (known == CellStatus::ok) known = status;
  }
  if (cell.status == CellStatus::ok) cell.status = result.status;
}

std::map<int, nlohmann::json> SessionCore::query(const RankSet& ranks, const std::string& what,
                                                 const nlohmann::json& arguments, std::chrono::milliseconds limit) {
  if (!started()) return {};
  return state_->runner->query(ranks, what, arguments, limit);
}

std::unique_ptr<GpuLookup> SessionCore::look_up_gpus() { return std::make_unique<GpuLookup>(state_->loop); }

protocol::CompilerResponse SessionCore::ask(const protocol::CompilerRequest& request) {
  start();
  return state_->compiler->ask(request).response;
}

void SessionCore::configure(const protocol::Configure& change) {
  protocol::Configure& known = state_->configuration;
  for (const auto& [name, value] : change.environment) known.environment[name] = value;
  if (change.directory) {
    known.directory = change.directory;
    directory = *change.directory;
  }
  if (started()) state_->workers->hub().send(live_ranks(), change);
}

const protocol::Configure& SessionCore::configuration() const { return state_->configuration; }

void SessionCore::interrupt(const RankSet& ranks) {
  if (!started()) return;
  state_->runner->interrupt(ranks);
  state_->loop.run_until([&] { return (state_->runner->busy() & ranks).empty(); },
                         EventLoop::Clock::now() + kInterruptLimit);
}

bool SessionCore::interrupt_busy_ranks() {
  const RankSet ranks = busy_ranks();
  if (ranks.empty()) return false;
  interrupt(ranks);
  if (const RankSet left = busy_ranks() & ranks; !left.empty())
    message(left.words() + " did not come back; %hang and %stack say where", {{"ranks", left}});
  return true;
}

std::vector<inspect::HangPicture> SessionCore::hang_pictures() {
  return started() ? state_->runner->hang_pictures() : std::vector<inspect::HangPicture>();
}

void SessionCore::abort(const RankSet& ranks, const std::string& reason) {
  if (started()) state_->runner->abort(ranks, reason);
}

RankSet SessionCore::busy_ranks() const { return started() ? state_->runner->busy() : RankSet(); }

RankDescription SessionCore::describe_rank(int rank) const {
  const RankInfo& info = state_->workers->rank(rank);
  RankDescription result;
  result.pid = info.pid;
  result.host = info.host;
  result.device = info.device;
  result.threads = info.threads;
  result.dead = !live_ranks().contains(rank);
  result.cell = state_->runner->cell_of(rank);
  result.waits_in = state_->runner->wait_of(rank);
  return result;
}

}  // namespace lockstep::shell
