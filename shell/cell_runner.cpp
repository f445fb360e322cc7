#include "shell/cell_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "protocol/error.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSecondInterrupt{3000};
// After a time limit: how long an interrupt may take, then an abort of collectives; what is left then is killed.
constexpr milliseconds kAfterInterrupt{2000};
constexpr milliseconds kAfterAbort{3000};
constexpr int kLastStage = 2;
constexpr milliseconds kAbortLimit{5000};
constexpr double kRegroupLimit_s = 30;
constexpr size_t kRepeatableTexts = 256;

milliseconds seconds_to_ms(double s) { return milliseconds(static_cast<int64_t>(s * 1000)); }

}  // namespace

CellRunner::CellRunner(EventLoop& loop, CompilerService& compiler, WorkerGroup& workers, SessionDirectory& directory,
                       const SessionOptions& options, std::function<void(Event)> emit)
    : loop_(loop),
      compiler_(compiler),
      workers_(workers),
      directory_(directory),
      options_(options),
      emit_(std::move(emit)),
      folder_([this](Event event) { emit_(std::move(event)); },
              [this](int rank, int64_t bytes) {
                int64_t& owed = owed_credit_[rank];
                owed += bytes;
                if (owed < protocol::kOutputWindow / 4) return;
                workers_.hub().send(rank, protocol::Credit{std::exchange(owed, 0)});
              }),
      finding_folder_([this](Finding finding) {
        findings_.push_back(finding);
        emit_(FindingEvent{std::move(finding)});
      }),
      hangs_(loop, workers, directory, options,
             {.cells =
                  [this] {
                    std::vector<CellRun*> runs;
                    for (Open& cell : cells_) runs.push_back(&cell.run);
                    return runs;
                  },
              .current = [this] { return current_ ? &(*current_)->run : nullptr; },
              .add_finding = [this](Finding finding, int64_t number) { add_finding(std::move(finding), number, -1); },
              .emit = [this](Event event) { emit_(std::move(event)); },
              .interrupt = [this](const RankSet& ranks) { interrupt(ranks); },
              .end_what_stays =
                  [this] {
                    if (cell_timer_) loop_.cancel(*cell_timer_);
                    timeout_stage_ = kLastStage;
                    cell_timer_ = loop_.at(Clock::now() + kAfterAbort, [this] { cell_timeout(); });
                  }}) {
  folder_.expect(workers_.live());
}

CellRunner::~CellRunner() {
  cancel_timers();
  if (folder_timer_) loop_.cancel(*folder_timer_);
  if (finding_timer_) loop_.cancel(*finding_timer_);
  folder_.flush();
}

// ---- The way of a cell ------------------------------------------------------------------------------------------------------

CodeResult CellRunner::run(const CellRequest& request, const OverAfter& over) {
  interrupted_ = false;
  interrupts_ = 0;
  CodeResult result;
  result.ranks = request.ranks;
  regroup_if_needed();

  const int64_t id = ++last_id_;
  if (request.number != id) numbers_[id] = request.number;
  Object object;
  std::optional<OpenCell> opened = open_again(request, object);
  if (!opened) opened = open_compiled(request, id, result, object);
  if (!opened) return result;
  const OpenCell cell = *opened;
  protocol::Run run{.cell = id, .number = request.number};
  if (object.id != id) run.object = object.id, run.object_number = object.number;
  for (;;) {
    cell->run.started();
    if (!object.empty)
      workers_.hub().send(request.ranks, run);
    else
      for (int rank : request.ranks) cell->run.done(rank, protocol::Done{.cell = id, .status = "ok"});
    serve_cell(cell);
    if (!over || !cell->run.over() || cell->run.status() != "ok" || over(cell->run.run_ms())) break;
    cell->run = CellRun(id, request.number, request.ranks, false);
  }
  current_.reset();
  if (cell->run.over()) return close(cell);

  // The prompt comes back; the ranks that wait may still be joined.
  settle(*cell, true);
  result.status = "waiting";
  result.rank_status = cell->run.rank_status();
  result.run_ms = cell->run.run_ms();
  folder_.expect(workers_.live() - busy());
  return result;
}

/// Compiled, and loaded on its ranks. Nothing where there is nothing to run: `result` says why.
std::optional<CellRunner::OpenCell> CellRunner::open_compiled(const CellRequest& request, int64_t id,
                                                              CodeResult& result, Object& object) {
  FromCompiler answer;
  if (!compile(request, id, result, answer)) return std::nullopt;
  const auto& compiled = std::get<protocol::Compiled>(answer.response);
  object = {.id = id, .number = request.number, .empty = compiled.objects.empty()};
  directory_.write_cell(request.number, !request.whole_text.empty() ? request.whole_text
                                        : object.empty              ? request.text
                                                                    : compiled.objects.front().source);
  const OpenCell cell = open(request, !object.empty);
  cell->settles = true;
  cell->event.compile_ms = result.compile_ms;
  current_ = cell;
  if (!load(cell, compiled, answer.frames)) {
    current_.reset();
    result = close(cell);
    return std::nullopt;
  }
  if (compiled.repeatable && compiled.rendered.empty() && !object.empty) {
    if (repeatable_.size() == kRepeatableTexts) repeatable_.clear();
    repeatable_.emplace(source_of(request), object);
  }
  return cell;
}

/// The same text again, and nothing has been defined since: its object is there already.
std::optional<CellRunner::OpenCell> CellRunner::open_again(const CellRequest& request, Object& object) {
  if (repeatable_since_ != compiler_.definitions()) repeatable_.clear();
  repeatable_since_ = compiler_.definitions();
  const auto known = repeatable_.find(source_of(request));
  if (known == repeatable_.end()) return std::nullopt;
  object = known->second;
  directory_.write_cell(request.number, !request.whole_text.empty() ? request.whole_text : request.text);
  const OpenCell cell = open(request, false);
  current_ = cell;
  return cell;
}

CellRunner::Source CellRunner::source_of(const CellRequest& request) {
  return {request.text, request.ranks, request.optimize, request.debug, request.directory};
}

CodeResult CellRunner::run_builtin(const std::string& name, const nlohmann::json& arguments, const RankSet& ranks,
                                   int64_t number) {
  interrupted_ = false;
  interrupts_ = 0;
  regroup_if_needed();
  CellRequest request;
  request.ranks = ranks;
  request.number = number;
  ++last_id_;
  numbers_[last_id_] = number;
  const OpenCell cell = open(request, false);
  current_ = cell;
  cell->run.started();
  workers_.hub().send(ranks, protocol::Builtin{last_id_, name, arguments});
  serve_cell(cell);
  current_.reset();
  if (cell->run.over()) return close(cell);
  CodeResult result;
  result.ranks = ranks;
  result.status = "waiting";
  return result;
}

CellRunner::OpenCell CellRunner::open(const CellRequest& request, bool has_objects) {
  CellEvent event;
  event.cell = request.number;
  event.title = request.title;
  event.ranks = request.ranks;
  cells_.push_back({.run = CellRun(last_id_, request.number, request.ranks, has_objects), .event = std::move(event)});
  folder_.expect(request.ranks);
  return std::prev(cells_.end());
}

bool CellRunner::compile(const CellRequest& request, int64_t id, CodeResult& result, FromCompiler& answer) {
  protocol::Compile compile;
  compile.cell = id;
  compile.text = request.text;
  compile.ranks = request.ranks;
  compile.optimize = request.optimize;
  compile.debug = request.debug;
  compile.time_limit_s = options_.compile_timeout_s;
  compile.directory = request.directory;
  compile.number = request.number;
  compiling_ = true;
  answer = compiler_.ask(compile);
  compiling_ = false;
  auto* compiled = std::get_if<protocol::Compiled>(&answer.response);
  if (!compiled) throw ChannelError("lockstep-compiler answered a cell with something else");
  result.compile_ms = compiled->ms;
  if (compiled->status == "ok" && !interrupted_) {
    if (!compiled->rendered.empty()) say(compiled->rendered);
    return true;
  }
  if (compiled->status == "ok") compiler_.settle({.cell = id, .loaded = false, .steps_done = {}});
  if (interrupted_ || compiled->status == "cancelled") {
    result.status = "interrupted";
    return false;
  }
  result.status = "compile_error";
  ErrorEvent error{
      .cell = request.number, .ranks = request.ranks, .type = "compile_error", .message = compiled->rendered};
  error.diagnostics = compiled->diagnostics;
  if (compiled->status == "timeout")
    error.message = fmt::format(
                        "the cell was not compiled within {} s and has been given up; nothing of it remains "
                        "(--compile-timeout sets the limit)",
                        options_.compile_timeout_s) +
                    (compiled->rendered.empty() ? "" : "\n" + compiled->rendered);
  else if (compiled->status == "crash")
    error.message = "the compiler crashed over this cell; nothing of it remains, and the session goes on" +
                    (compiled->rendered.empty() ? std::string() : "\n" + compiled->rendered);
  for (const auto& diagnostic : compiled->diagnostics)
    if (diagnostic.severity == "error" && diagnostic.line > 0 && diagnostic.file.empty()) {
      error.where = fmt::format("cell {}, line {}", request.number, diagnostic.line);
      break;
    }
  emit_(error);
  return false;
}

bool CellRunner::load(OpenCell cell, const protocol::Compiled& compiled, std::vector<std::string>& frames) {
  for (const auto& object : compiled.objects) {
    std::vector<zmq::message_t> shared;
    shared.push_back(shared_frame(std::move(frames.at(static_cast<size_t>(object.frame)))));
    workers_.hub().send(object.ranks,
                        protocol::Load{cell->run.id(), object.name, object.entry, object.steps, cell->run.ranks()},
                        std::move(shared));
  }
  loop_.run_until([&] { return cell->run.load_answered(); });
  if (cell->run.may_run() && !interrupted_) return true;

  workers_.hub().send(cell->run.in(CellRun::Phase::loaded), protocol::Drop{cell->run.id()});
  for (const auto& [message, ranks] : cell->run.refusals())
    emit_(ErrorEvent{.cell = cell->run.number(), .ranks = ranks, .type = "load_error", .message = message});
  cell->event.status = interrupted_ ? "interrupted" : !cell->run.refusals().empty() ? "compile_error" : "";
  settle(*cell, false);
  return false;
}

/// Serves until the cell is over, or stuck in a session that leaves hangs to the user.
void CellRunner::serve_cell(OpenCell cell) {
  start_limits(cell);
  hangs_.cell_is_served();
  if (interrupted_) interrupt(cell->run.ranks());
  loop_.run_until([&] {
    return cell->run.over() || (!options_.abort_hangs && !cell_timer_ && cell->run.stuck() && !hangs_.is_busy());
  });
  hangs_.cell_is_left();
  cancel_timers();
  finding_folder_.flush();
}

void CellRunner::settle(Open& cell, bool loaded) {
  if (!std::exchange(cell.settles, false)) return;
  compiler_.settle({.cell = cell.run.id(),
                    .loaded = loaded,
                    .steps_done = loaded ? cell.run.steps_done() : std::map<int, int64_t>{}});
}

CodeResult CellRunner::close(OpenCell cell) {
  const CellRun& run = cell->run;
  folder_.flush();
  folder_.expect(workers_.live() - busy());
  emit_errors(run);
  note_end(run);
  CodeResult result;
  result.ranks = run.ranks();
  result.compile_ms = cell->event.compile_ms;
  result.status = !cell->event.status.empty() ? cell->event.status : run.status();
  result.run_ms = run.run_ms();
  result.rank_status = run.rank_status();
  settle(*cell, true);
  hangs_.cell_is_over(run.id());
  cells_.erase(cell);
  return result;
}

void CellRunner::emit_errors(const CellRun& run) {
  for (auto& event : fold_errors(run.number(), run.errors())) emit_(std::move(event));
  RankSet late;
  for (const auto& [rank, status] : run.rank_status())
    if (status == "timeout") late.insert(rank);
  if (!late.empty())
    emit_(ErrorEvent{.cell = run.number(),
                     .ranks = late,
                     .type = "timeout",
                     .message = fmt::format("the cell ran longer than {} s and was interrupted (--cell-timeout)",
                                            options_.cell_timeout_s)});
}

/// What the next cell has to know: whether the ranks' collectives are still in step.
void CellRunner::note_end(const CellRun& run) {
  for (const auto& [rank, status] : run.rank_status())
    if (status == "interrupted" || status == "aborted" || status == "timeout") needs_regroup_ = true;
  std::map<std::string, int64_t> entered;
  for (int rank : workers_.live() - busy())
    for (const auto& [group, count] : hangs_.entered_by(rank))
      if (const auto [known, fresh] = entered.emplace(group, count); !fresh && known->second != count)
        needs_regroup_ = true;
}

void CellRunner::regroup_if_needed() {
  const RankSet live = workers_.live();
  if (!needs_regroup_ || !busy().empty() || live.empty()) return;
  const int64_t generation = ++generation_;
  regrouped_.clear();
  workers_.hub().send(live, protocol::Regroup{generation, live, kRegroupLimit_s});
  const auto answered = [&] {
    for (int rank : live& workers_.live())
      if (!regrouped_.contains(rank)) return false;
    return true;
  };
  loop_.run_until(answered, Clock::now() + seconds_to_ms(kRegroupLimit_s + 5));
  RankSet failed;
  std::string why;
  for (int rank : live& workers_.live()) {
    const auto answer = regrouped_.find(rank);
    if (answer != regrouped_.end() && answer->second.ok) continue;
    failed.insert(rank);
    if (why.empty()) why = answer == regrouped_.end() ? "no answer" : answer->second.message;
  }
  if (failed.empty() && (live & workers_.live()) == live) {
    needs_regroup_ = false;
    hangs_.regrouped(live);
  } else if (!failed.empty()) {
    say("the ranks could not connect to one another again (" + failed.words() + ": " + why +
        "); collectives will fail until they do: the next cell tries again, %dist_reset starts afresh");
  }
}

// ---- Messages -----------------------------------------------------------------------------------------------------------------

void CellRunner::message(FromWorker& from) {
  const int rank = from.rank;
  const auto now = Clock::now();
  std::visit(
      [&](auto& m) {
        using M = std::remove_cvref_t<decltype(m)>;
        if constexpr (std::is_same_v<M, protocol::Output>) {
          std::string bytes = from.frames.empty() ? std::string() : from.frames[0].to_string();
          folder_.output(rank, number_of(m.cell), m.stream, std::move(bytes), now);
          arm_folder();
          hangs_.output_came();
        } else if constexpr (std::is_same_v<M, protocol::Value>) {
          folder_.value(rank, number_of(m.cell), std::move(m.text), std::move(m.data), now);
          arm_folder();
        } else if constexpr (std::is_same_v<M, protocol::FindingMessage>) {
          const int64_t number = number_of(m.finding.cell.value_or(0));
          add_finding(std::move(m.finding), number, rank);
        } else if constexpr (std::is_same_v<M, protocol::Loaded>) {
          loaded(rank, m);
        } else if constexpr (std::is_same_v<M, protocol::Done>) {
          done(rank, m);
        } else if constexpr (std::is_same_v<M, protocol::Waiting>) {
          if (const auto cell = cell_with(rank); cell != cells_.end() && cell->run.id() == m.cell)
            hangs_.waiting(cell->run, rank, m);
        } else if constexpr (std::is_same_v<M, protocol::LongWait>) {
          if (const auto cell = cell_with(rank); cell != cells_.end() && cell->run.id() == m.cell)
            hangs_.long_wait(cell->run, rank, m);
        } else if constexpr (std::is_same_v<M, protocol::Regrouped>) {
          if (m.generation == generation_) regrouped_[rank] = m;
        } else if constexpr (std::is_same_v<M, protocol::Reply>) {
          if (hangs_.reply(rank, m)) return;
          if (const auto query = replies_.find(m.id); query != replies_.end()) query->second[rank] = std::move(m.body);
        }
      },
      from.message);
}

CellRunner::OpenCell CellRunner::cell_with(int rank) {
  return std::find_if(cells_.begin(), cells_.end(), [&](const Open& c) { return c.run.active().contains(rank); });
}

void CellRunner::loaded(int rank, const protocol::Loaded& message) {
  const auto cell = cell_with(rank);
  if (cell == cells_.end() || cell->run.id() != message.cell) return;
  cell->run.loaded(rank, message);
  if (message.warning && rank == cell->run.ranks().ranks().front()) say(*message.warning);
}

void CellRunner::done(int rank, const protocol::Done& message) {
  hangs_.entered(rank, message.collectives);
  const auto cell = cell_with(rank);
  if (cell == cells_.end() || cell->run.id() != message.cell) return;
  if (message.regroup) needs_regroup_ = true;
  const bool was_waiting =
      cell->run.in(CellRun::Phase::waiting).contains(rank) || hangs_.has_told(cell->run.id(), rank);
  cell->run.done(rank, message);
  if (was_waiting) emit_(RankEvent{rank, "idle", ""});
  left(rank, message.status);
  rank_is_back(cell);
}

void CellRunner::left(int rank, const std::string& how) {
  folder_.left(rank, Clock::now());
  finding_folder_.left(rank);
  arm_folder();
  hangs_.left(rank, how);
}

/// A cell that nobody serves any more is closed when its last rank comes back.
void CellRunner::rank_is_back(OpenCell cell) {
  if (!cell->run.over() || current_ == cell) return;
  CellEvent event = cell->event;
  const auto result = close(cell);
  event.status = result.status;
  event.rank_status = result.rank_status;
  event.run_ms = result.run_ms;
  emit_(std::move(event));
}

void CellRunner::died(int rank, const protocol::CellError& error) {
  hangs_.died(rank);
  needs_regroup_ = true;
  repeatable_.clear();
  const auto cell = cell_with(rank);
  const bool mid_cell = cell != cells_.end();
  const std::string where = mid_cell ? fmt::format(" in cell {}", cell->run.number()) : std::string();
  const bool by_signal = error.type.starts_with("SIG");
  emit_(RankEvent{rank, "dead",
                  (by_signal ? "ended by " + error.type : error.message.substr(0, error.message.find('\n'))) + where});
  if (!mid_cell) {
    died_while_idle_.insert(rank);
    folder_.flush();
    emit_(ErrorEvent{
        .cell = 0, .ranks = {rank}, .type = error.type, .message = error.message + " while no cell ran on it"});
    folder_.left(rank, Clock::now());
    return;
  }
  cell->run.dead(rank, error);
  left(rank, "dead");
  rank_is_back(cell);
}

/// `from`: the rank that found it; -1 for the session itself. What several ranks find alike is one finding.
void CellRunner::add_finding(Finding finding, int64_t number, int from) {
  finding.cell = number > 0 ? std::optional(number) : std::nullopt;
  if (from >= 0) {
    nlohmann::json alike = finding;
    if (finding.inspector == "collectives" && finding.op) {  // not every rank has loaded the cells of all calls
      alike.erase("message");
      alike.erase("where");
    }
    RankSet& sources = finding_sources_[alike.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)];
    const bool told_by_others = !sources.empty() && !sources.contains(from);
    if (!told_by_others) sources = {};
    sources.insert(from);
    if (told_by_others) return;
  }
  const auto cell = cell_with(from);
  const RankSet may_follow = cell == cells_.end() ? RankSet() : cell->run.active();
  finding_folder_.add(std::move(finding), from, may_follow, Clock::now());
  arm_finding_folder();
}

// ---- Limits and interrupts --------------------------------------------------------------------------------------------------

void CellRunner::start_limits(OpenCell cell) {
  timeout_stage_ = 0;
  if (options_.cell_timeout_s > 0)
    cell_timer_ = loop_.at(Clock::now() + seconds_to_ms(options_.cell_timeout_s), [this] { cell_timeout(); });
}

void CellRunner::cell_timeout() {
  cell_timer_.reset();
  if (!current_) return;
  CellRun& run = (*current_)->run;
  switch (timeout_stage_++) {
    case 0:
      run.timed_out();
      interrupt(run.active());
      cell_timer_ = loop_.at(Clock::now() + kAfterInterrupt, [this] { cell_timeout(); });
      break;
    case 1:
      workers_.hub().send(run.active(), protocol::Abort{"the cell's time is over"});
      cell_timer_ = loop_.at(Clock::now() + kAfterAbort, [this] { cell_timeout(); });
      break;
    default:
      say(run.active().words() + " could not be interrupted and " + (run.active().size() == 1 ? "is" : "are") +
          " ended");
      for (int rank : run.active()) workers_.kill(rank);
  }
}

void CellRunner::interrupt(const RankSet& ranks) {
  for (auto& cell : cells_) {
    const RankSet inside = cell.run.active() & ranks;
    workers_.hub().send(inside, protocol::Interrupt{cell.run.id()});
  }
}

void CellRunner::abort(const RankSet& ranks, const std::string& reason) {
  const RankSet meant = busy() & ranks;
  const RankSet outside = hangs_.outside_collectives(meant);
  workers_.hub().send(meant, protocol::Abort{reason});
  loop_.run_until([&] { return (busy() & (meant - outside)).empty(); }, Clock::now() + kAbortLimit);
}

std::vector<inspect::HangPicture> CellRunner::hang_pictures() {
  const auto answers = query(workers_.live(), "hang", hangs_.question(), milliseconds(1000));
  std::vector<inspect::HangPicture> pictures;
  for (const Open& cell : cells_) pictures.push_back(hangs_.picture(&cell.run, answers));
  if (pictures.empty()) pictures.push_back(hangs_.picture(nullptr, answers));
  return pictures;
}

void CellRunner::user_interrupt() {
  const auto now = Clock::now();
  interrupted_ = true;
  if (compiling_) compiler_.cancel();
  if (!current_) return;
  const RankSet active = (*current_)->run.active();
  interrupts_ = interrupts_ > 0 && now - last_interrupt_ > kSecondInterrupt && interrupts_ < 2 ? 1 : interrupts_ + 1;
  last_interrupt_ = now;
  if (interrupts_ == 1) {
    interrupt(active);
  } else if (interrupts_ == 2 && !active.empty()) {
    say(fmt::format("{} did not come back. Ctrl-C once more ends {}: what {} holds is lost, the others keep theirs",
                    active.words(), active.size() == 1 ? "it" : "them", active.size() == 1 ? "it" : "they"));
    interrupt(active);
  } else if (interrupts_ > 2) {
    for (int rank : active) workers_.kill(rank);
  }
}

// ---- Questions ----------------------------------------------------------------------------------------------------------------

std::map<int, nlohmann::json> CellRunner::query(const RankSet& ranks, const std::string& what,
                                                const nlohmann::json& arguments, milliseconds limit) {
  const RankSet asked = ranks & workers_.live();
  const int64_t id = ++last_query_;
  auto& answers = replies_[id];
  workers_.hub().send(asked, protocol::Query{id, what, arguments});
  loop_.run_until([&] { return answers.size() >= (asked & workers_.live()).size(); }, Clock::now() + limit);
  auto result = std::move(answers);
  replies_.erase(id);
  return result;
}

RankSet CellRunner::busy() const {
  RankSet result;
  for (const auto& cell : cells_) result = result | cell.run.active();
  return result;
}

int64_t CellRunner::cell_of(int rank) const {
  for (const auto& cell : cells_)
    if (cell.run.active().contains(rank)) return cell.run.number();
  return 0;
}

std::string CellRunner::wait_of(int rank) const {
  for (const auto& cell : cells_)
    if (const auto wait = cell.run.waits().find(rank); wait != cell.run.waits().end())
      return fmt::format("{} #{}{}", wait->second.op.name, wait->second.op.seq,
                         wait->second.where.empty() ? "" : " of " + wait->second.where);
  return {};
}

int64_t CellRunner::number_of(int64_t id) const {
  const auto found = numbers_.find(id);
  return found == numbers_.end() ? id : found->second;
}

void CellRunner::say(const std::string& text) {
  emit_(MessageEvent{current_ ? (*current_)->run.number() : 0, text, nullptr});
}

void CellRunner::arm_folder() {
  if (folder_timer_) return;
  const auto deadline = folder_.deadline();
  if (!deadline) return;
  folder_timer_ = loop_.at(*deadline, [this] {
    folder_timer_.reset();
    folder_.due(Clock::now());
    arm_folder();
  });
}

void CellRunner::arm_finding_folder() {
  if (finding_timer_) return;
  const auto deadline = finding_folder_.deadline();
  if (!deadline) return;
  finding_timer_ = loop_.at(*deadline, [this] {
    finding_timer_.reset();
    finding_folder_.due(Clock::now());
    arm_finding_folder();
  });
}

void CellRunner::cancel_timers() {
  if (cell_timer_) loop_.cancel(*cell_timer_);
  cell_timer_.reset();
}

}  // namespace lockstep::shell
