#include "shell/session/session_core.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <set>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/text.h"
#include "shell/jobs/session_hosts.h"
#include "shell/jobs/ticket_ranks.h"
#include "shell/processes/compiler_service.h"
#include "shell/processes/limits.h"
#include "shell/processes/local_ranks.h"
#include "shell/processes/replayed_rank.h"
#include "shell/processes/session_plan.h"
#include "shell/processes/worker_group.h"
#include "shell/session/session_journal.h"
#include "shell/session/session_state.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kInterruptLimit{2};
constexpr int kThreadsOfRank = 7;

}  // namespace

SessionCore::SessionCore(SessionOptions options, EventSink& events)
    : state_(std::make_unique<State>()),
      options_(std::move(options)),
      events_(events),
      id_(new_session_id()),
      journal_(
          id_, limits_of_journal(options_), [this] { return description_for_journal(options_, directory_); },
          [this](const std::string& text) { events_.take(MessageEvent{current_number(), text, nullptr}); }) {
  std::error_code error;
  directory_ = std::filesystem::current_path(error).string();
  if (options_.reports_activity) events_.start(state_->loop, [this] { return activity(); });
}

SessionCore::~SessionCore() { events_.stop(); }

// ---- Start and end --------------------------------------------------------------------------------------------------

RankGroup::Listener SessionCore::State::listener(std::function<void(const std::string&)> warning) {
  return {.message =
              [this](FromWorker& from) {
                if (runner) runner->message(from);
              },
          .last_output =
              [this](int rank, Stream stream, std::string bytes) {
                if (runner) runner->last_output(rank, stream, std::move(bytes));
              },
          .warning = std::move(warning),
          .died =
              [this](int rank, const protocol::CellError& error) {
                if (runner) runner->died(rank, error);
              },
          .left =
              [this](int rank) {
                if (runner) runner->has_left(rank);
              },
          .store_ended =
              [this](const std::string& how) {
                if (runner) runner->store_ended(how);
              },
          .calls =
              [this](const std::vector<dist::NewCall>& calls) {
                if (runner) runner->calls(calls);
              },
          .start_failed =
              [this] {
                if (compiler) compiler->cancel();
              }};
}

void SessionCore::start(bool is_asked) {
  if (started()) return;
  check_record_options(options_.record);
  State& s = *state_;
  s.history_at_start = history_.entries().size();
  s.record_steps = 0;
  s.is_recorded = false;
  const ActivityReporter::Scope reporting(events_);
  const StartScope starting(s.start);
  try {
    SessionEvent event = options_.job ? open_job() : options_.python ? open_python() : open_workers();
    s.runner =
        std::make_unique<CellRunner>(s.loop, *s.compiler, *s.workers, *s.directory, options_, [this](Event each) {
          auto* value = std::get_if<ValueEvent>(&each);
          if (value && state_->captured_values)
            state_->captured_values->push_back(std::move(*value));
          else
            show(each);
        });
    s.runner->on_serve([this] {
      if (const auto typed = state_->typed) typed();
    });
    event.id = s.directory->id();
    event.ranks = options_.replay ? live_ranks() : RankSet::all(world_size());
    event.is_asked = is_asked;
    for (int rank : live_ranks()) event.devices[rank] = s.workers->rank(rank).device;
    event.versions["lockstep"] = kVersion;
    event.versions["protocol"] = std::to_string(kProtocolVersion);
    s.description = {{"started", std::time(nullptr)},
                     {"ranks", world_size()},
                     {"backend", event.is_python ? "python" : event.backend},
                     {"versions", event.versions}};
    describe_session();
    if (!s.configuration.environment.empty() || s.configuration.directory)
      s.workers->hub().send(live_ranks(), s.configuration);
    show(s.event = event);
    if (const std::string places = s.workers->places_text(); !places.empty()) message(places);
    const std::string text = kind() == PromptKind::job   ? s.job->places(event.ranks)
                             : kind() == PromptKind::cpp ? stack_shortage()
                                                         : std::string();
    if (!text.empty()) message(text);
    if (options_.record.steps > 0) record(options_.record.steps);
  } catch (const StartError& error) {
    s.end();
    const std::string shortage = kind() == PromptKind::cpp ? stack_shortage() : "";
    if (shortage.empty()) throw;
    throw StartError(error.what() + ("\n" + shortage));
  } catch (...) {
    s.end();
    throw;
  }
}

/// Writes session.json.
void SessionCore::describe_session() {
  nlohmann::json description = state_->description;
  description["workers"] = state_->workers->describe();
  state_->directory->describe(std::move(description));
}

/// Starts the ranks, the store and the compiler.
SessionEvent SessionCore::open_workers() {
  State& s = *state_;
  const bool is_here = options_.is_here();
  SessionPlan plan = is_here ? plan_session(options_) : SessionPlan();
  (void)working_directory();
  // A rank here has 7 threads when it is connected; the process that it is a copy of, the store, the compiler and this
  // process have 9 between them.
  require_threads(9 + kThreadsOfRank * plan.world_size,
                  fmt::format("the session could not start: a session of {} rank{}", plan.world_size,
                              plan.world_size == 1 ? "" : "s"));
  s.directory = std::make_unique<SessionDirectory>(id_);
  const CompilerOptions compiler{s.directory->path(), options_.include_dirs, options_.compile_memory_mb};
  const auto progress = [this](const protocol::CompilerProgress& step) { report_start_step(step); };
  s.compiler = options_.objects ? options_.objects(s.loop, compiler, progress)
                                : std::make_unique<CompilerService>(s.loop, compiler, progress);
  RankPlaces places;
  if (options_.replay)
    places.push_back(replayed_rank(s.loop, *options_.replay, plan, *s.directory));
  else if (is_here)
    places.push_back(
        std::make_unique<LocalRanks>(s.loop, plan, *s.directory, s.directory->hub_endpoint(), options_.rehearsal));
  else
    places = places_elsewhere();
  auto group = std::make_unique<WorkerGroup>(s.loop, std::move(places), options_, *s.directory,
                                             s.listener([this](const std::string& text) { message(text); }));
  const WorkerGroup& workers = *group;
  s.workers = std::move(group);
  const protocol::CompilerReady& ready = wait_for_compiler();
  s.workers->wait_connected();
  s.workers->make_ready(ready.prelude, ready.versions);
  SessionEvent event;
  event.backend = workers.backend();
  event.versions = {{"libtorch", ready.versions.libtorch}, {"compiler", ready.versions.compiler}};
  return event;
}

/// Waits for it; a rank that ends meanwhile is reported at once.
const protocol::CompilerReady& SessionCore::wait_for_compiler() {
  State& s = *state_;
  try {
    return s.compiler->wait_ready();
  } catch (const StartError&) {
    if (const std::string& why = s.workers->start_error(); !why.empty())
      throw StartError("the session could not start: " + why);
    throw;
  }
}

RankPlaces SessionCore::places_elsewhere() {
  State& s = *state_;
  bool interrupted = false;
  const InterruptScope interrupts(s.interrupt_command, [&] { interrupted = true; });
  const auto says = [this](const std::string& text) { message(text); };
  if (!options_.hosts.empty()) return places_on_hosts(s.loop, options_, s.directory->hub_path(), interrupted, says);
  return places_by_ticket(s.loop, options_, s.directory->hub_path(), interrupted, says);
}

/// Reports what takes long at the start, for people and for the display of the activity.
void SessionCore::report_start_step(const protocol::CompilerProgress& step) {
  if (auto& start = state_->start) {
    start->step = step.step;
    start->step_since = EventLoop::Clock::now();
  }
  if (step.message.empty()) return;
  const bool is_known = step.step && step.step->last_s;
  message(step.message + (is_known ? fmt::format("; the last time it took {:.0f} s", *step.step->last_s) : ""));
}

void SessionCore::shutdown() {
  State& s = *state_;
  conclude_replay();
  if (s.workers) s.workers->shutdown();
  keep_recording();
  settings_.before_each_cell = nullptr;
  if (s.runner) s.runner->end_open_loops();
  s.end();
}

/// Serves a display, about once a second: asks nobody.
std::optional<ActivityEvent> SessionCore::activity() const {
  const State& s = *state_;
  if (!s.start) return s.runner ? s.runner->activity() : std::nullopt;
  const auto seconds_since = [](EventLoop::Clock::time_point begin) {
    return std::chrono::duration<double>(EventLoop::Clock::now() - begin).count();
  };
  ActivityEvent event{.phase = ActivityEvent::Phase::starting, .elapsed_s = seconds_since(s.start->since)};
  event.step = s.start->step;
  if (event.step) event.step_s = seconds_since(s.start->step_since);
  std::map<RankInfo::State, RankSet> ranks;
  for (int rank = 0; rank < world_size(); ++rank) ranks[s.workers->rank(rank).state].insert(rank);
  for (const auto& [state, which] : ranks)
    event.parts.push_back({.ranks = which,
                           .state = state == RankInfo::State::starting    ? "starting"
                                    : state == RankInfo::State::connected ? "connected"
                                    : state == RankInfo::State::dead      ? "dead"
                                                                          : "ready"});
  return event;
}

bool SessionCore::started() const { return state_->runner != nullptr; }

int SessionCore::world_size() const { return state_->workers ? state_->workers->world_size() : 0; }

RankSet SessionCore::live_ranks() const { return state_->workers ? state_->workers->live() : RankSet(); }

RankSet SessionCore::departed_ranks() const {
  return state_->job && options_.job ? state_->job->away() | state_->job->finished() : RankSet();
}

RankSet SessionCore::dead_ranks() const { return RankSet::all(world_size()) - live_ranks(); }

RankSet SessionCore::target_ranks() {
  start();
  return live_target();
}

RankSet SessionCore::live_target() const {
  const RankSet live = live_ranks();
  if (settings_.target) return *settings_.target & live;
  if (settings_.distributed || live.empty()) return live;
  return RankSet{live.ranks().front()};
}

RankSet SessionCore::parse_ranks(std::string_view spec) {
  start();
  return parse_rank_set(with_ranks_of_hosts(spec), world_size());
}

/// Puts the ranks of a host in place of "@node1" and "host:node1".
std::string SessionCore::with_ranks_of_hosts(std::string_view spec) const {
  std::string result;
  for (const std::string& part : protocol::split(spec, ',')) {
    const bool takes_away = part.starts_with('^');
    const std::string_view word = std::string_view(part).substr(takes_away ? 1 : 0);
    const size_t prefix = word.starts_with('@') ? 1 : word.starts_with("host:") ? 5 : 0;
    if (!result.empty()) result += ',';
    if (prefix == 0) {
      result += part;
      continue;
    }
    std::set<std::string> hosts;
    std::string ranks;
    for (int rank = 0; rank < world_size(); ++rank) {
      const std::string& host = state_->workers->rank(rank).host;
      hosts.insert(host);
      if (host == word.substr(prefix))
        ranks += fmt::format("{}{}{}", ranks.empty() ? "" : ",", takes_away ? "^" : "", rank);
    }
    if (ranks.empty())
      throw UsageError(
          fmt::format("no rank is on host '{}': the ranks are on {}", word.substr(prefix), fmt::join(hosts, ", ")));
    result += ranks;
  }
  return result;
}

int64_t SessionCore::next_cell() const { return state_->last_number + 1; }

EventLoop& SessionCore::loop() { return state_->loop; }

JobGroup* SessionCore::job() const { return state_->job; }

Language SessionCore::language_of_cell() const {
  return state_->cell ? state_->cell->settings.language.value_or(language()) : language();
}

int64_t SessionCore::current_number() const { return state_->cell ? state_->cell->number : 0; }

// ---- What magics have done ------------------------------------------------------------------------------------------

void SessionCore::message(std::string text, nlohmann::json data) {
  show(MessageEvent{current_number(), std::move(text), std::move(data)});
}

void SessionCore::help(std::string text, nlohmann::json data) {
  show(MessageEvent{current_number(), std::move(text), std::move(data), /*is_help=*/true});
}

void SessionCore::check_alive(const RankSet& ranks) const {
  if (options_.replay && !live_ranks().empty()) return;  // what concerns the other ranks does nothing
  if (live_ranks().empty() && options_.job)
    throw UsageError(
        state_->job->away().empty()
            ? "all ranks have ended: where the launcher starts them again, `lockstep attach` finds the new ones"
            : "no rank is at a breakpoint: continue waits until one is");
  if (live_ranks().empty()) throw UsageError("all ranks are dead: %dist_reset starts the session afresh");
  if (options_.job) {
    for (const int rank : ranks - live_ranks())
      throw UsageError(fmt::format("rank {} {}: {}", rank, state_->workers->absence(rank),
                                   live_ranks().empty() ? "continue waits until ranks stop"
                                                        : "name ranks that have stopped (" + live_ranks().str() + ")"));
  }
  if (const RankSet dead = ranks & dead_ranks(); !dead.empty())
    throw UsageError(dead.words() + (dead.size() == 1 ? " is" : " are") + " dead: name other ranks (" +
                     live_ranks().str() + " live), " +
                     (state_->workers->can_restart(dead.ranks().front()) ? "start it again (%restart), " : "") +
                     "or start afresh with %dist_reset");
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
  if (options_.replay) request.ranks = request.ranks & live_ranks();
  if (options_.replay && request.ranks.empty() && !live_ranks().empty()) return {};
  check_ranks(request.ranks);
  if (options_.has_python_ranks() && !start_compiler_of_job(request.ranks)) {
    if (state_->cell) state_->cell->status = CellStatus::interrupted;
    CodeResult interrupted;
    interrupted.status = CellStatus::interrupted;
    return interrupted;
  }
  RunningCell* cell = state_->cell;
  request.number = take_number();
  request.text = std::string(static_cast<size_t>(std::max(0, line - 1)), '\n') + std::string(code);
  request.optimize = settings.optimize.value_or(0);
  request.debug = settings.debug || options_.debug_cells;
  request.directory = directory_;
  if (cell) {
    request.title = cell->title;
    request.whole_text = cell->text;
  }
  CodeResult result = state_->runner->run(request, over);
  compiler_messages_ = result.compiler_messages;
  if (cell) note_result(result, settings);
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

CodeResult SessionCore::run_builtin(const protocol::Function& function, const RankSet& ranks) {
  start();
  check_ranks(ranks);
  RunningCell* cell = state_->cell;
  CodeResult result = state_->runner->run_builtin(function, ranks, cell ? cell->number : 0);
  if (cell && cell->status == CellStatus::ok) cell->status = result.status;
  return result;
}

/// The number of the running cell, which gets one with the first code of it that runs; a new one where none runs.
int64_t SessionCore::take_number() {
  if (!state_->cell) return ++state_->last_number;
  int64_t& number = state_->cell->number;
  return number == 0 ? number = ++state_->last_number : number;
}

/// Adds what a part of the running cell did to the cell's event.
void SessionCore::note_result(const CodeResult& result, const CellSettings& settings) {
  RunningCell& cell = *state_->cell;
  cell.event.keeps_names = cell.event.keeps_names && settings.keeps_names;
  cell.event.ranks = cell.event.ranks | result.ranks;
  cell.event.compile_ms += result.compile_ms;
  for (const auto& [rank, ms] : result.run_ms) cell.event.run_ms[rank] += ms;
  for (const auto& [rank, status] : result.rank_status) {
    CellStatus& known = cell.event.rank_status[rank];  // a new one is ok
    if (known == CellStatus::ok) known = status;
  }
  if (cell.status == CellStatus::ok) cell.status = result.status;
}

std::map<int, protocol::Answer> SessionCore::ask_io_threads(const RankSet& ranks, const protocol::Question& question,
                                                            std::chrono::milliseconds limit) {
  if (!started()) return {};
  return state_->runner->query(ranks, question, limit);
}

protocol::CompilerResponse SessionCore::ask(const protocol::CompilerRequest& request) {
  start();
  return state_->compiler->ask(request).response;
}

void SessionCore::configure(const protocol::Configure& change) {
  protocol::Configure& known = state_->configuration;
  for (const auto& [name, value] : change.environment) known.environment[name] = value;
  if (change.directory) {
    known.directory = change.directory;
    directory_ = *change.directory;
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

std::vector<inspect::HangPicture> SessionCore::hang_pictures() {
  return started() ? state_->runner->hang_pictures() : std::vector<inspect::HangPicture>();
}

SessionCore::Restart SessionCore::restart(const RankSet& ranks) {
  if (const RankSet alive = ranks & live_ranks(); !alive.empty())
    throw UsageError(fmt::format("%restart is for dead ranks; {} live{} (%dist_status shows the ranks)", alive.words(),
                                 alive.size() == 1 ? "s" : ""));
  if (options_.objects)
    throw UsageError(
        "a rank of a file of `lockstep build` can't be started again alone: %dist_reset starts all afresh");
  check_can_connect();
  for (const int rank : ranks)
    if (!state_->workers->can_restart(rank))
      throw UsageError(fmt::format(
          "rank {} can't be started again alone, since {}: %dist_reset starts all ranks afresh", rank,
          options_.has_python_ranks() ? "Python ranks can only on the session's machine, with the backend lockstep"
                                      : "its host is lost"));
  Restart result;
  for (const int rank : ranks) {
    std::optional<RestartedRank> restarted;
    try {
      restarted = state_->runner->restart(rank, ranks, state_->configuration);
    } catch (const StartError& error) {  // of a rank, not of the session, which goes on
      result.error = error.what();
    }
    describe_session();
    if (!restarted) break;
    result.ranks.emplace(rank, std::move(*restarted));
  }
  note_new_ranks(result.ranks);
  if (!result.ranks.empty()) state_->record_steps = 0;  // a recording ends where a process is new
  if (!result.ranks.empty() && !state_->runner->is_interrupted()) result.is_connected = state_->runner->connect();
  result.is_interrupted = state_->runner->is_interrupted();
  return result;
}

/// Tells front ends of those that are no ranks of the session that they know.
void SessionCore::note_new_ranks(const std::map<int, RestartedRank>& back) {
  SessionEvent& event = state_->event;
  const size_t known = event.ranks.size();
  for (const auto& [rank, restarted] : back) {
    event.ranks.insert(rank);
    event.devices[rank] = state_->workers->rank(rank).device;
  }
  if (event.ranks.size() == known) return;
  event.has_grown = true;
  show(event);
}

void SessionCore::grow(int size) {
  State& s = *state_;
  const int before = world_size();
  if (!options_.is_here())
    throw UsageError(
        fmt::format("ranks on other machines become no more than at the start: for {} of them: %dist_shutdown, then "
                    "%dist_init -n {}",
                    size, size));
  if (options_.objects || options_.rehearsal || options_.replay)
    throw UsageError(fmt::format("ranks of a {} become no more than at its start",
                                 options_.replay ? "replay" : "file of `lockstep build`"));
  check_can_connect();
  SessionOptions wanted = options_;
  wanted.num_processes = size;
  const SessionPlan plan = plan_session(wanted);
  if (!options_.has_python_ranks())
    require_threads(kThreadsOfRank * (size - before),
                    fmt::format("the session can't grow: {} ranks more", size - before));
  s.workers->grow(plan);
  s.runner->session_grows(before);
  options_.num_processes = size;
  s.event.backend = plan.backend;
  s.description["ranks"] = size;
}

/// Throws UsageError where the ranks can't connect their groups again.
void SessionCore::check_can_connect() const {
  if (const RankSet busy = busy_ranks(); !busy.empty()) check_ranks(busy);
  if (!state_->workers->has_store())
    throw UsageError("ranks can't connect without the store, whose process has ended: %dist_reset starts afresh");
}

bool SessionCore::continue_without_the_dead() {
  check_can_connect();
  return state_->runner->continue_without_the_dead();
}

RankSet SessionCore::dismiss(const RankSet& ranks) {
  check_can_connect();
  const RankSet left = state_->workers->dismiss(ranks);
  describe_session();
  return left;
}

bool SessionCore::is_interrupted() const { return started() && state_->runner->is_interrupted(); }

RankSet SessionCore::default_ranks() const { return started() ? state_->runner->default_ranks() : RankSet(); }

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
  result.away = state_->job && state_->job->away().contains(rank);
  result.dead = !result.away && !live_ranks().contains(rank);
  result.cell = state_->runner->cell_of(rank);
  result.waits_in = state_->runner->wait_of(rank);
  return result;
}

}  // namespace lockstep::shell
