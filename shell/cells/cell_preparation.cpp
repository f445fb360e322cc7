// How the runner of cells prepares one: its ranks are connected to one another, it is compiled, and loaded on all of them. A death, an interrupt
// and a limit end each of the three; nothing of the cell has run then.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "protocol/error.h"
#include "shell/cells/cell_runner.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kRegroupLimit{30};
constexpr std::chrono::seconds kRegroupGrace{5};  // for the answers
constexpr std::chrono::seconds kStopRegroupLimit{1};
// A rank loads a cell in milliseconds. Limits of cells do not hold for it when they are shorter than this, and after this people hear of it.
constexpr std::chrono::seconds kLoadPatience{5};

/// Why a cell was not compiled, told once: the compiler has its own words for what became of the process that was at it; where it is gone
/// itself there are no diagnostics, and `rendered` is what is known of its end.
ErrorEvent compile_failure(const CellRequest& request, const protocol::Compiled& compiled, double limit_s) {
  ErrorEvent error{
      .cell = request.number, .ranks = request.ranks, .type = "compile_error", .message = compiled.rendered};
  const std::string reason = compiled.diagnostics.empty() ? compiled.rendered : "";
  if (compiled.status == CompileStatus::timeout) {
    error.type = "timeout";
    error.message = fmt::format(
        "the cell was not compiled within {:g} s and has been given up (an endless template?); nothing of it remains. "
        "--compile-timeout sets the limit{}",
        limit_s, reason.empty() ? "" : "\n" + reason);
    return error;
  }
  error.diagnostics = compiled.diagnostics;
  if (compiled.status == CompileStatus::crash && compiled.diagnostics.empty())
    error.message =
        "the compiler crashed over this cell: " + reason + "\nNothing of it remains, and the session goes on";
  for (const auto& diagnostic : compiled.diagnostics)
    if (diagnostic.severity == DiagnosticSeverity::error && diagnostic.line > 0 && diagnostic.file.empty()) {
      error.where = fmt::format("cell {}, line {}", request.number, diagnostic.line);
      break;
    }
  return error;
}

}  // namespace

CellRunner::Preparation::Preparation(CellRunner& runner, const RankSet& ranks, int64_t number) : runner_(runner) {
  runner_.interrupted_ = runner_.leaving_;
  runner_.interrupts_ = 0;
  runner_.preparing_ = ranks;
  runner_.preparing_number_ = number;
  runner_.lost_ = {};
  if (!runner_.interrupted_) runner_.regroup_if_needed();
}

CellRunner::Preparation::~Preparation() {
  runner_.preparing_ = {};
  runner_.compiling_ = false;
}

/// Whether the cell that is being prepared can't be run any more; `result` says why.
bool CellRunner::is_stopped(CodeResult& result) {
  if (!interrupted_ && lost_.empty()) return false;
  result.status = lost_.empty() ? CellStatus::interrupted : CellStatus::dead;
  for (int rank : lost_) result.rank_status[rank] = CellStatus::dead;
  if (!lost_.empty()) say(fmt::format("nothing of the cell has run: {} died before it was loaded", lost_.words()));
  return true;
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
  compile.repeats = repeats_;
  compiling_ = true;
  answer = compiler_.ask(compile);
  compiling_ = false;
  auto* compiled = std::get_if<protocol::Compiled>(&answer.response);
  if (!compiled) throw ChannelError("lockstep-compiler answered a cell with something else");
  result.compile_ms = compiled->ms;
  result.compiler_messages = compiled->rendered_whole.empty() ? compiled->rendered : compiled->rendered_whole;
  const bool stopped = is_stopped(result);
  if (compiled->status == CompileStatus::ok && !stopped) {
    if (!compiled->rendered.empty()) say(compiled->rendered);
    return true;
  }
  if (compiled->status == CompileStatus::ok) compiler_.settle({.cell = id, .loaded = false, .steps_done = {}});
  if (stopped) return false;
  if (compiled->status == CompileStatus::cancelled) {
    result.status = CellStatus::interrupted;
    return false;
  }
  emit_(compile_failure(request, *compiled, options_.compile_timeout_s));
  result.status = compiled->status == CompileStatus::timeout ? CellStatus::timeout : CellStatus::compile_error;
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
  const CellRun& run = cell->run;
  // The limits of cells, so that a rank that does not answer can't keep `run` for ever.
  double limit_s = options_.cell_timeout_s > 0 ? options_.cell_timeout_s : options_.hang_timeout_s;
  std::optional<Clock::time_point> deadline;
  if (limit_s > 0) {
    limit_s = std::max(limit_s, static_cast<double>(kLoadPatience.count()));
    deadline = Clock::now() + milliseconds(static_cast<int64_t>(limit_s * 1000));
  }
  const EventLoop::Timer slow = loop_.at(Clock::now() + kLoadPatience, [this, &run] { report_load(run); });
  loop_.run_until([&] { return run.load_answered() || interrupted_ || !run.in(CellRun::Phase::dead).empty(); },
                  deadline);
  loop_.cancel(slow);
  if (run.may_run() && !interrupted_) return true;

  // A rank that has not answered yet drops the cell when it has loaded it.
  const RankSet late = run.in(CellRun::Phase::loading);
  workers_.hub().send(run.in(CellRun::Phase::loaded) | late, protocol::Drop{run.id()});
  for (const auto& [message, ranks] : run.refusals())
    emit_(ErrorEvent{.cell = run.number(), .ranks = ranks, .type = "load_error", .message = message});
  const RankSet dead = run.in(CellRun::Phase::dead);
  if (interrupted_) {
    cell->not_loaded = CellStatus::interrupted;
  } else if (!dead.empty()) {
    say(fmt::format("nothing of the cell has run: {} died before it was loaded", dead.words()));
  } else if (!run.refusals().empty()) {
    cell->not_loaded = CellStatus::compile_error;
  } else {
    cell->not_loaded = CellStatus::timeout;
    emit_(ErrorEvent{
        .cell = run.number(),
        .ranks = late,
        .type = "timeout",
        .message = fmt::format("the cell was not loaded within {:g} s, and nothing of it has run: the process does not "
                               "answer. %dist_status and %stack say what it is at; %dist_reset starts afresh",
                               limit_s)});
  }
  cancel_timers();
  settle(*cell, false);
  return false;
}

void CellRunner::report_load(const CellRun& run) {
  if (options_.abort_hangs) return;  // `run`: nobody is there to press it
  const RankSet late = run.in(CellRun::Phase::loading);
  say(fmt::format("{} {} not loaded the cell yet; Ctrl-C gives it up", late.words(),
                  late.size() == 1 ? "has" : "have"));
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
    if (!std::exchange(reported_no_regroup_, true))
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

}  // namespace lockstep::shell
