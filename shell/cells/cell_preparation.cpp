#include "shell/cells/cell_preparation.h"

#include <fmt/format.h>

#include <algorithm>

#include "protocol/error.h"

namespace lockstep::shell {
namespace {

using Clock = EventLoop::Clock;
using std::chrono::milliseconds;

// A rank loads a cell in milliseconds. Limits of cells do not hold for it when they are shorter than this, and after
// this people hear of it.
constexpr std::chrono::seconds kLoadPatience{5};
constexpr size_t kMostRepeats = 1000;

/// Says why a cell was not compiled. The compiler has its own words for what became of the process that compiled it;
/// where the compiler itself is gone there are no diagnostics, and `rendered` is what is known of its end.
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

std::string nothing_has_run(const RankSet& dead) {
  return fmt::format("nothing of the cell has run: {} died before it was loaded", dead.words());
}

}  // namespace

CellPreparation::Scope CellPreparation::begin(const RankSet& ranks, int64_t number) {
  enter(Phase::connecting);
  ranks_ = ranks;
  number_ = number;
  lost_ = {};
  return Scope(*this);
}

bool CellPreparation::is_stopped(CodeResult& result) const {
  if (!stopper_.is_interrupted() && lost_.empty()) return false;
  result.status = lost_.empty() ? CellStatus::interrupted : CellStatus::dead;
  for (int rank : lost_) result.rank_status[rank] = CellStatus::dead;
  if (!lost_.empty()) services_.message(nothing_has_run(lost_));
  return true;
}

bool CellPreparation::rank_died(int rank) {
  const bool is_open = phase_ == Phase::idle || phase_ == Phase::loading;
  if (is_open || !ranks_.contains(rank)) return false;
  lost_.insert(rank);  // what one of its ranks can't load, none runs
  if (phase_ == Phase::compiling) services_.compiler.cancel();
  return true;
}

OpenCell& CellPreparation::open(int64_t id, const CellRequest& request, bool has_objects) {
  enter(has_objects ? Phase::loading : Phase::idle);
  OpenCell& cell = cells_.open(id, request, has_objects);
  output_.expect(request.ranks);
  return cell;
}

OpenCell& CellPreparation::open(const CellRequest& request) {
  return open(cells_.new_id(request.number), request, false);
}

PreparedCell CellPreparation::prepare(const CellRequest& request, CodeResult& result) {
  const int64_t id = cells_.new_id(request.number);
  if (auto again = prepare_again(request, id)) return *again;

  FromCompiler answer;
  if (!compile(request, id, result, answer)) return {};
  const auto& compiled = std::get<protocol::Compiled>(answer.response);
  PreparedCell prepared;
  prepared.object = {.id = id, .number = request.number, .empty = compiled.objects.empty()};
  write_source(request, prepared.object.empty ? request.text : compiled.objects.front().source);
  OpenCell& cell = open(id, request, !prepared.object.empty);
  cell.settles = true;
  cell.event.compile_ms = result.compile_ms;
  prepared.cell = &cell;
  prepared.is_loaded = load(cell, request.text, compiled, answer.frames);
  enter(Phase::idle);
  if (prepared.is_loaded && compiled.repeatable && compiled.rendered.empty() && !prepared.object.empty)
    repeatable_.remember(request, prepared.object);
  return prepared;
}

/// Takes the object that is there already: the same text comes again, and nothing has been defined since.
std::optional<PreparedCell> CellPreparation::prepare_again(const CellRequest& request, int64_t id) {
  const auto known = repeatable_.find(request, services_.compiler.definitions());
  if (!known) return std::nullopt;
  repeats_.emplace_back(request.number, known->number);
  if (repeats_.size() > kMostRepeats) repeats_.erase(repeats_.begin());
  write_source(request, request.text);
  return PreparedCell{.cell = &open(id, request, false), .is_loaded = true, .object = *known};
}

/// `source` is what the line tables name, where the text of the cell is not known as a whole.
void CellPreparation::write_source(const CellRequest& request, const std::string& source) const {
  services_.directory.write_cell(request.number, !request.whole_text.empty() ? request.whole_text : source);
}

bool CellPreparation::compile(const CellRequest& request, int64_t id, CodeResult& result, FromCompiler& answer) {
  protocol::Compile compile;
  compile.cell = id;
  compile.text = request.text;
  compile.ranks = request.ranks;
  compile.optimize = request.optimize;
  compile.debug = request.debug;
  compile.time_limit_s = services_.options.compile_timeout_s;
  compile.directory = request.directory;
  compile.number = request.number;
  compile.repeats = repeats_;
  enter(Phase::compiling);
  answer = services_.compiler.ask(compile);
  auto* compiled = std::get_if<protocol::Compiled>(&answer.response);
  if (!compiled) throw ChannelError("lockstep-compiler answered a cell with something else");
  result.compile_ms = compiled->ms;
  result.compiler_messages = compiled->rendered_whole.empty() ? compiled->rendered : compiled->rendered_whole;
  const bool is_ok = compiled->status == CompileStatus::ok, stopped = is_stopped(result);
  if (is_ok && !stopped) {
    if (!compiled->rendered.empty()) services_.message(compiled->rendered);
    return true;
  }
  if (is_ok) services_.compiler.settle({.cell = id, .loaded = false, .steps_done = {}});
  if (stopped) return false;
  if (compiled->status == CompileStatus::cancelled) {
    result.status = CellStatus::interrupted;
    return false;
  }
  services_.emit(compile_failure(request, *compiled, services_.options.compile_timeout_s));
  result.status = compiled->status == CompileStatus::timeout ? CellStatus::timeout : CellStatus::compile_error;
  return false;
}

void CellPreparation::send(const CellRun& run, const std::string& text, const protocol::CompiledObject& object,
                           std::string bytes) {
  const protocol::Load load{.cell = run.id(),
                            .name = object.name,
                            .entry = object.entry,
                            .steps = object.steps,
                            .ranks = run.ranks(),
                            .file = {}};
  if (services_.keeps_past_cells()) past_.sent(object.ranks, run.number(), load, bytes, text);
  services_.workers.send_object(object.ranks, load, std::move(bytes));
}

bool CellPreparation::load(OpenCell& cell, const std::string& text, const protocol::Compiled& compiled,
                           std::vector<std::string>& frames) {
  const CellRun& run = cell.run;
  for (const auto& object : compiled.objects)
    send(run, text, object, std::move(frames.at(static_cast<size_t>(object.frame))));
  // These are the limits of cells, so that a rank that does not answer can't keep `run` for ever.
  double limit_s =
      services_.options.cell_timeout_s > 0 ? services_.options.cell_timeout_s : services_.options.hang_timeout_s;
  std::optional<Clock::time_point> deadline;
  if (limit_s > 0) {
    limit_s = std::max(limit_s, static_cast<double>(kLoadPatience.count()));
    deadline = Clock::now() + milliseconds(static_cast<int64_t>(limit_s * 1000));
  }
  Deadline slow(services_.loop);
  slow.set_after(kLoadPatience, [&] { report_slow_load(run); });
  services_.loop.run_until(
      [&] { return run.load_answered() || stopper_.is_interrupted() || !run.in(CellRun::Phase::dead).empty(); },
      deadline);
  slow.cancel();
  if (run.may_run() && !stopper_.is_interrupted()) return true;

  // A rank that has not answered yet drops the cell when it has loaded it.
  services_.workers.hub().send(run.in(CellRun::Phase::loaded) | run.in(CellRun::Phase::loading),
                               protocol::Drop{run.id()});
  past_.dropped(run.id());
  report_not_loaded(cell, limit_s);
  settle(cell, false);
  return false;
}

void CellPreparation::report_slow_load(const CellRun& run) const {
  if (services_.options.abort_hangs) return;  // `run`: nobody is there to press it
  const RankSet late = run.in(CellRun::Phase::loading);
  services_.message(fmt::format("{} {} not loaded the cell yet; {} gives it up", late.words(),
                                late.size() == 1 ? "has" : "have", services_.options.interrupt_words));
}

/// Emits why, and notes it in the cell. Where a rank has died, that is the cause which its CellRun knows.
void CellPreparation::report_not_loaded(OpenCell& cell, double limit_s) const {
  const CellRun& run = cell.run;
  for (const auto& [message, ranks] : run.refusals())
    services_.emit(ErrorEvent{.cell = run.number(), .ranks = ranks, .type = "load_error", .message = message});
  if (stopper_.is_interrupted()) {
    cell.not_loaded = CellStatus::interrupted;
  } else if (const RankSet dead = run.in(CellRun::Phase::dead); !dead.empty()) {
    services_.message(nothing_has_run(dead));
  } else if (!run.refusals().empty()) {
    cell.not_loaded = CellStatus::compile_error;
  } else {
    cell.not_loaded = CellStatus::timeout;
    services_.emit(ErrorEvent{
        .cell = run.number(),
        .ranks = run.in(CellRun::Phase::loading),
        .type = "timeout",
        .message = fmt::format("the cell was not loaded within {:g} s, and nothing of it has run: the process does not "
                               "answer. %dist_status and %stack say what it is at; %dist_reset starts afresh",
                               limit_s)});
  }
}

void CellPreparation::settle(OpenCell& cell, bool loaded) {
  if (!std::exchange(cell.settles, false)) return;
  if (loaded) repeats_.clear();
  services_.compiler.settle({.cell = cell.run.id(),
                             .loaded = loaded,
                             .steps_done = loaded ? cell.run.steps_done() : std::map<int, int64_t>{}});
}

}  // namespace lockstep::shell
