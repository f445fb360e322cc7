#include "shell/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "protocol/error.h"
#include "shell/cell_runner.h"
#include "shell/compiler_service.h"
#include "shell/magic_parser.h"
#include "shell/outcome.h"
#include "shell/session_directory.h"
#include "shell/session_impl.h"
#include "shell/session_plan.h"
#include "shell/timing.h"
#include "shell/worker_group.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kInterruptLimit{2};

/// Watches a descriptor while a cell runs.
class Watched {
 public:
  Watched(EventLoop& loop, int fd, const std::function<void()>& ready) : loop_(loop), fd_(ready ? fd : -1) {
    if (fd_ >= 0) loop_.watch(fd_, ready);
  }
  ~Watched() {
    if (fd_ >= 0) loop_.forget(fd_);
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  EventLoop& loop_;
  int fd_;
};

}  // namespace

/// The cell that run() is at.
struct RunningCell {
  std::string title, text;
  int64_t number = 0;                          // 0 until C++ of it runs
  CellSettings settings;
  CellEvent event;
  std::string status = "ok";
};

struct Session::Impl::State {
  EventLoop loop;
  Pipe signals = make_pipe();
  std::unique_ptr<SessionDirectory> directory;
  std::unique_ptr<CompilerService> compiler;
  std::unique_ptr<WorkerGroup> workers;
  std::unique_ptr<CellRunner> runner;
  protocol::Configure configuration;
  int64_t last_number = 0;
  RunningCell* cell = nullptr;
  bool starting = false;

  ~State() {
    runner.reset();
    workers.reset();
    compiler.reset();
    loop.forget(signals.read.get());
  }
};

Session::Impl::Impl(SessionOptions session_options, EventSink& sink)
    : options(std::move(session_options)), events(sink), state_(std::make_unique<State>()) {
  ::fcntl(state_->signals.read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(state_->signals.write.get(), F_SETFL, O_NONBLOCK);
  std::error_code error;
  directory = std::filesystem::current_path(error).string();
  state_->loop.watch(state_->signals.read.get(), [this] {
    char bytes[16];
    const auto n = ::read(state_->signals.read.get(), bytes, sizeof bytes);
    for (int i = 0; i < n; ++i) {
      if (state_->runner) state_->runner->user_interrupt();
      if (!state_->starting) continue;
      if (state_->compiler) state_->compiler->cancel();
      if (state_->workers) state_->workers->cancel_start("interrupted");
    }
  });
}

Session::Impl::~Impl() { shutdown(); }

// ---- Start and end ------------------------------------------------------------------------------------------------------------

void Session::Impl::start() {
  if (started()) return;
  const SessionPlan plan = plan_session(options);
  State& s = *state_;
  s.starting = true;
  try {
    s.directory = std::make_unique<SessionDirectory>();
    s.compiler = std::make_unique<CompilerService>(s.loop, CompilerOptions{s.directory->path(), options.include_dirs},
                                                   [this](const std::string& text) { message(text); });
    s.workers = std::make_unique<WorkerGroup>(s.loop, plan, options, *s.directory,
                                              WorkerGroup::Listener{[this](FromWorker& from) {
                                                                      if (state_->runner) state_->runner->message(from);
                                                                    },
                                                                    [this](int rank, const protocol::CellError& error) {
                                                                      if (state_->runner)
                                                                        state_->runner->died(rank, error);
                                                                    }});
    const auto& ready = s.compiler->wait_ready();
    s.workers->wait_connected();
    s.workers->make_ready(ready.prelude, ready.versions);
    s.runner = std::make_unique<CellRunner>(s.loop, *s.compiler, *s.workers, *s.directory, options,
                                            [this](Event event) { events.take(event); });
    SessionEvent event;
    event.id = s.directory->id();
    event.ranks = s.workers->live();
    event.backend = plan.backend;
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
    s.starting = false;
  } catch (...) {  // whatever went wrong: nothing that was started stays
    s.starting = false;
    s.runner.reset();
    s.workers.reset();
    s.compiler.reset();
    s.directory.reset();
    throw;
  }
}

void Session::Impl::shutdown() {
  State& s = *state_;
  if (s.workers) s.workers->shutdown();
  s.runner.reset();
  s.workers.reset();
  s.compiler.reset();
  s.directory.reset();
}

bool Session::Impl::started() const { return state_->runner != nullptr; }

int Session::Impl::world_size() const { return state_->workers ? state_->workers->world_size() : 0; }

RankSet Session::Impl::live_ranks() const { return state_->workers ? state_->workers->live() : RankSet(); }

RankSet Session::Impl::dead_ranks() const { return RankSet::all(world_size()) - live_ranks(); }

RankSet Session::Impl::target_ranks() {
  start();
  const RankSet live = live_ranks();
  if (target) return *target & live;
  if (distributed || live.empty()) return live;
  return RankSet{live.ranks().front()};
}

RankSet Session::Impl::parse_ranks(std::string_view spec) {
  start();
  return parse_rank_set(spec, world_size());
}

int64_t Session::Impl::next_number() const { return state_->last_number + 1; }

// ---- What magics can have done --------------------------------------------------------------------------------------------------

void Session::Impl::message(std::string text, nlohmann::json data) {
  events.take(MessageEvent{state_->cell ? state_->cell->number : 0, std::move(text), std::move(data)});
}

void Session::Impl::check_ranks(const RankSet& ranks) const {
  if (live_ranks().empty()) throw UsageError("all ranks are dead: %dist_reset starts the session afresh");
  if (const RankSet dead = ranks & dead_ranks(); !dead.empty())
    throw UsageError(dead.words() + (dead.size() == 1 ? " is" : " are") + " dead: name other ranks (" +
                     live_ranks().str() + " live), or start afresh with %dist_reset");
  if (ranks.empty()) throw UsageError("no live rank is meant: " + live_ranks().words() + " can be named");
  const RankSet busy = ranks & state_->runner->busy();
  if (busy.empty()) return;
  const int first = busy.ranks().front();
  const std::string wait = state_->runner->wait_of(first);
  throw UsageError(
      fmt::format("rank {} is still in cell {}{}: %abort frees it, or a cell on other ranks ({}) may join it", first,
                  state_->runner->cell_of(first), wait.empty() ? "" : ", waiting in " + wait,
                  (live_ranks() - state_->runner->busy()).str()));
}

CodeResult Session::Impl::run_code(std::string_view code, const CellSettings& settings, int line,
                                   const std::function<bool(const std::map<int, double>&)>& over) {
  start();
  CellRequest request;
  request.ranks = settings.ranks ? *settings.ranks : target_ranks();
  check_ranks(request.ranks);
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
  if (cell) note_result(result);
  return result;
}

CodeResult Session::Impl::run_builtin(const std::string& name, const nlohmann::json& arguments, const RankSet& ranks) {
  start();
  check_ranks(ranks);
  RunningCell* cell = state_->cell;
  CodeResult result = state_->runner->run_builtin(name, arguments, ranks, cell ? cell->number : 0);
  if (cell && cell->status == "ok") cell->status = result.status;
  return result;
}

/// Adds what a part of the running cell did to the cell's event.
void Session::Impl::note_result(const CodeResult& result) {
  RunningCell& cell = *state_->cell;
  cell.event.ranks = cell.event.ranks | result.ranks;
  cell.event.compile_ms += result.compile_ms;
  for (const auto& [rank, ms] : result.run_ms) cell.event.run_ms[rank] += ms;
  for (const auto& [rank, status] : result.rank_status) {
    std::string& known = cell.event.rank_status[rank];
    if (known.empty() || known == "ok") known = status;
  }
  if (cell.status == "ok") cell.status = result.status;
}

std::map<int, nlohmann::json> Session::Impl::query(const RankSet& ranks, const std::string& what,
                                                   const nlohmann::json& arguments, std::chrono::milliseconds limit) {
  if (!started()) return {};
  return state_->runner->query(ranks, what, arguments, limit);
}

protocol::CompilerResponse Session::Impl::ask(const protocol::CompilerRequest& request) {
  start();
  return state_->compiler->ask(request).response;
}

void Session::Impl::configure(const protocol::Configure& change) {
  protocol::Configure& known = state_->configuration;
  for (const auto& [name, value] : change.environment) known.environment[name] = value;
  if (change.directory) {
    known.directory = change.directory;
    directory = *change.directory;
  }
  if (started()) state_->workers->hub().send(live_ranks(), change);
}

const protocol::Configure& Session::Impl::configuration() const { return state_->configuration; }

void Session::Impl::interrupt(const RankSet& ranks) {
  if (!started()) return;
  state_->runner->interrupt(ranks);
  state_->loop.run_until([&] { return (state_->runner->busy() & ranks).empty(); },
                         EventLoop::Clock::now() + kInterruptLimit);
}

std::vector<inspect::HangPicture> Session::Impl::hang_pictures() {
  return started() ? state_->runner->hang_pictures() : std::vector<inspect::HangPicture>();
}

void Session::Impl::abort(const RankSet& ranks, const std::string& reason) {
  if (started()) state_->runner->abort(ranks, reason);
}

RankSet Session::Impl::busy_ranks() const { return started() ? state_->runner->busy() : RankSet(); }

RankDescription Session::Impl::describe_rank(int rank) const {
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

// ---- A cell -----------------------------------------------------------------------------------------------------------------------

CellOutcome Session::Impl::run(const std::string& text, const std::string& title) {
  RunningCell cell;
  cell.title = title;
  cell.text = text;
  state_->cell = &cell;
  const Watched typing(state_->loop, input_fd, input);  // a copy: the callback may end the watching
  if (state_->runner) state_->runner->clear_findings();
  CellOutcome outcome;
  const auto fail = [&](const char* status, const char* type, const std::string& what) {
    cell.status = status;
    events.take(ErrorEvent{.cell = cell.number, .ranks = {}, .type = type, .message = what});
  };
  try {
    run_parts(cell, outcome);
  } catch (const UsageError& error) {
    fail("usage_error", "usage_error", error.what());
  } catch (const StartError&) {
    state_->cell = nullptr;
    throw;
  } catch (const std::exception& error) {
    fail("error", "session_error", error.what());
  }
  outcome.cell = cell.number;
  outcome.status = cell.status;
  if (state_->runner) outcome.findings = state_->runner->findings();
  if (cell.number > 0 && cell.status != "waiting") {
    cell.event.cell = cell.number;
    cell.event.title = title;
    cell.event.status = cell.status;
    events.take(cell.event);
  }
  history.push_back({cell.number, title, text, cell.event.ranks, cell.status});
  state_->cell = nullptr;
  return outcome;
}

void Session::Impl::run_parts(RunningCell& cell, CellOutcome& outcome) {
  const auto& registry = MagicRegistry::instance();
  const ParsedCell parsed = parse_cell(cell.text, registry);
  for (const auto& use : parsed.cell_magics) {
    MagicCall call{*this, use.arguments, parsed.body, use.line};
    registry.find(use.name, true).cell(call, cell.settings);
  }
  if (cell.settings.timeit) {
    timeit(*this, parsed.body, cell.settings, parsed.cell_magics.back().line);
    return;
  }
  if (cell.settings.run) {
    cell.settings.run(cell.settings);
    return;
  }
  if (!cell.settings.before.empty()) {
    run_code(cell.settings.before, cell.settings, 1);
    if (cell.status != "ok") return;
  }
  try {
    run_parts_between(cell, parsed, outcome);
  } catch (const UsageError&) {
    run_behind(cell);
    throw;
  }
  run_behind(cell);
}

/// What a cell magic has to do at the end, on the ranks that are still there.
void Session::Impl::run_behind(RunningCell& cell) {
  if (!cell.settings.behind || cell.status == "waiting") return;
  CellSettings settings = cell.settings;
  settings.ranks = settings.ranks.value_or(target_ranks()) & (live_ranks() - busy_ranks());
  if (!settings.ranks->empty()) run_code(cell.settings.behind(settings), settings, 1);
}

void Session::Impl::run_parts_between(RunningCell& cell, const ParsedCell& parsed, CellOutcome& outcome) {
  const auto& registry = MagicRegistry::instance();
  CodeResult total;
  for (const auto& part : parsed.parts) {
    if (part.is_code) {
      const CodeResult result = run_code(part.code, cell.settings, 1);
      total.compile_ms += result.compile_ms;
      for (const auto& [rank, ms] : result.run_ms) total.run_ms[rank] += ms;
    } else {
      MagicCall call{*this, part.magic.arguments, {}, part.magic.line};
      const CellOutcome told = registry.find(part.magic.name, false).line(call);
      if (cell.status == "ok") cell.status = told.status;
      outcome.exit_requested = outcome.exit_requested || told.exit_requested;
    }
    if (cell.status != "ok" || outcome.exit_requested) break;
  }
  if (cell.settings.time && parsed.has_code()) {
    TimeReport report = time_report(total);
    message(std::move(report.text), std::move(report.data));
  }
}

void Session::Impl::serve(int fd, std::optional<std::chrono::milliseconds> limit) {
  State& s = *state_;
  bool readable = false;
  if (fd >= 0) s.loop.watch(fd, [&] { readable = true; });
  std::optional<EventLoop::Clock::time_point> deadline;
  if (limit) deadline = EventLoop::Clock::now() + *limit;
  try {
    s.loop.run_until([&] { return readable; }, deadline);
  } catch (const ChannelError& error) {
    events.take(ErrorEvent{.cell = 0, .ranks = {}, .type = "session_error", .message = error.what()});
  }
  if (fd >= 0) s.loop.forget(fd);
}

void Session::Impl::stop_watching_typing() {
  if (input_fd >= 0) state_->loop.forget(input_fd);
}

/// A magic that works at any time; false where the line is none.
bool Session::Impl::run_now(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t");
  if (!started() || begin == std::string::npos || line[begin] != '%' || line.compare(begin, 2, "%%") == 0) return false;
  const size_t end = std::min(line.find_first_of(" \t", begin), line.size());
  const std::string name = line.substr(begin + 1, end - begin - 1);
  const auto magics = MagicRegistry::instance().all();
  const auto magic = std::find_if(magics.begin(), magics.end(),
                                  [&](const Magic* each) { return each->name == name && each->at_any_time; });
  if (magic == magics.end()) return false;
  message(line.substr(begin));  // it was typed without an echo
  const size_t first = line.find_first_not_of(" \t", end), last = line.find_last_not_of(" \t");
  MagicCall call{*this, first == std::string::npos ? "" : line.substr(first, last - first + 1), {}, 1};
  try {
    (*magic)->line(call);
  } catch (const UsageError& error) {
    events.take(ErrorEvent{
        .cell = state_->cell ? state_->cell->number : 0, .ranks = {}, .type = "usage_error", .message = error.what()});
  }
  return true;
}

void Session::Impl::interrupt_from_signal() noexcept {
  const char byte = 1;
  (void)!::write(state_->signals.write.get(), &byte, 1);
}

// ---- Session ------------------------------------------------------------------------------------------------------------------------

Session::Session(SessionOptions options, EventSink& events)
    : impl_(std::make_unique<Impl>(std::move(options), events)) {}
Session::~Session() = default;

const SessionOptions& Session::options() const { return impl_->options; }
SessionOptions& Session::options() { return impl_->options; }
void Session::start() { impl_->start(); }
void Session::shutdown() { impl_->shutdown(); }
bool Session::started() const { return impl_->started(); }
int Session::world_size() const { return impl_->world_size(); }
RankSet Session::live_ranks() const { return impl_->live_ranks(); }
RankSet Session::target_ranks() const { return impl_->started() ? impl_->target_ranks() : RankSet(); }
int64_t Session::next_cell() const { return impl_->next_number(); }
CellOutcome Session::run(const std::string& text, const std::string& title) {
  CellOutcome outcome = impl_->run(text, title);
  for (size_t k = 0; k < impl_->queued.size() && outcome.status == "ok" && !outcome.exit_requested; ++k) {
    const ScriptCell cell = impl_->queued[k];  // a copy: it may be a %load itself
    if (cell.markdown) {
      impl_->events.take(MarkdownEvent{cell.text});
      continue;
    }
    const CellOutcome next = impl_->run(cell.text, cell.title);
    outcome.cell = next.cell;
    outcome.exit_requested = next.exit_requested;
    if (judge(cell.tags, next, {}).exit_code == kExitOk) continue;
    outcome.status = next.status == "ok" && next.findings.empty() ? "error" : next.status;
    outcome.findings.insert(outcome.findings.end(), next.findings.begin(), next.findings.end());
    if (!next.findings.empty()) break;
  }
  impl_->queued.clear();
  return outcome;
}
void Session::serve(int fd, std::optional<std::chrono::milliseconds> limit) { impl_->serve(fd, limit); }
void Session::interrupt() noexcept { impl_->interrupt_from_signal(); }
void Session::watch_typing(int fd, std::function<void()> typed) {
  impl_->stop_watching_typing();
  impl_->input_fd = fd;
  impl_->input = std::move(typed);
}
bool Session::run_now(const std::string& line) { return impl_->run_now(line); }

protocol::Completeness Session::is_complete(const std::string& text) {
  const auto response = impl_->ask(protocol::IsComplete{text});
  const auto* answer = std::get_if<protocol::Completeness>(&response);
  return answer ? *answer : protocol::Completeness{.status = "complete"};
}

protocol::Completions Session::complete(const std::string& text, int64_t offset) {
  const auto response = impl_->ask(protocol::Complete{text, offset, impl_->target_ranks()});
  const auto* answer = std::get_if<protocol::Completions>(&response);
  return answer ? *answer : protocol::Completions{.begin = offset, .end = offset, .completions = {}};
}

protocol::Inspection Session::inspect(const std::string& expression) {
  const auto response = impl_->ask(protocol::Inspect{expression, impl_->target_ranks()});
  const auto* answer = std::get_if<protocol::Inspection>(&response);
  return answer ? *answer : protocol::Inspection{};
}

}  // namespace lockstep::shell
