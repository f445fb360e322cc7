#include "shell/cell_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "protocol/error.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kRegroupLimit{30};
constexpr std::chrono::seconds kRegroupGrace{5};  // for the answers
constexpr std::chrono::seconds kStopRegroupLimit{1};

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
      findings_(loop, [this](Event event) { emit_(std::move(event)); }),
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
              .end_what_stays = [this] { end_what_stays(); }}) {
  folder_.expect(workers_.live());
}

CellRunner::~CellRunner() {
  cancel_timers();
  if (folder_timer_) loop_.cancel(*folder_timer_);
  folder_.flush();
}

// ---- The way of a cell ------------------------------------------------------------------------------------------------------

CodeResult CellRunner::run(const CellRequest& request, const OverAfter& over) {
  interrupted_ = false;
  interrupts_ = 0;
  CodeResult result;
  result.ranks = request.ranks;
  regroup_if_needed();
  if (interrupted_) {
    result.status = "interrupted";
    return result;
  }

  const int64_t id = ++last_id_;
  if (request.number != id) numbers_[id] = request.number;
  CellObject object;
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
                                                              CodeResult& result, CellObject& object) {
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
  if (compiled.repeatable && compiled.rendered.empty() && !object.empty) repeatable_.remember(request, object);
  return cell;
}

/// The same text again, and nothing has been defined since: its object is there already.
std::optional<CellRunner::OpenCell> CellRunner::open_again(const CellRequest& request, CellObject& object) {
  const auto known = repeatable_.find(request, compiler_.definitions());
  if (!known) return std::nullopt;
  object = *known;
  directory_.write_cell(request.number, !request.whole_text.empty() ? request.whole_text : request.text);
  const OpenCell cell = open(request, false);
  current_ = cell;
  return cell;
}

CodeResult CellRunner::run_builtin(const std::string& name, const nlohmann::json& arguments, const RankSet& ranks,
                                   int64_t number) {
  interrupted_ = false;
  interrupts_ = 0;
  regroup_if_needed();
  if (interrupted_) return {.status = "interrupted", .ranks = ranks};
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
  result.compiler_messages = compiled->rendered_whole.empty() ? compiled->rendered : compiled->rendered_whole;
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
  findings_.flush();
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
  if (workers_.has_store()) {
    const int64_t generation = ++generation_;
    regrouped_.clear();
    workers_.hub().send(live, protocol::Regroup{generation, live, static_cast<double>(kRegroupLimit.count())});
    const auto answered = [&] { return not_regrouped(live).empty(); };
    const auto stopped = [&] { return interrupted_ || !workers_.has_store(); };
    loop_.run_until([&] { return answered() || stopped(); }, Clock::now() + kRegroupLimit + kRegroupGrace);
    if (stopped()) {  // those that have connected give it up, too: the next cell tries again with all of them
      workers_.hub().send(live, protocol::Abort{"connecting the ranks again was stopped"});
      loop_.run_until(answered, Clock::now() + kStopRegroupLimit);
      if (interrupted_) return;
    }
  }
  if (!workers_.has_store()) {
    if (!std::exchange(told_no_regroup_, true))
      say("the ranks can't connect to one another again without the store; collectives fail until %dist_reset starts "
          "afresh");
    return;
  }
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

/// Those of `ranks` that live and have not answered yet.
RankSet CellRunner::not_regrouped(const RankSet& ranks) const {
  RankSet result;
  for (int rank : ranks& workers_.live())
    if (!regrouped_.contains(rank)) result.insert(rank);
  return result;
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

std::vector<inspect::HangPicture> CellRunner::hang_pictures() {
  const auto answers = query(workers_.live(), "hang", hangs_.question(), milliseconds(1000));
  std::vector<inspect::HangPicture> pictures;
  for (const Open& cell : cells_) pictures.push_back(hangs_.picture(&cell.run, answers));
  if (pictures.empty()) pictures.push_back(hangs_.picture(nullptr, answers));
  return pictures;
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

}  // namespace lockstep::shell
