// How a session runs a cell: its magics and its code.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "protocol/error.h"
#include "shell/scripts/python_cell.h"
#include "shell/session/out_of_memory.h"
#include "shell/session/session.h"
#include "shell/session/session_state.h"
#include "shell/session/timing.h"

namespace lockstep::shell {
namespace {

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

/// Takes in what came of a part of a cell.
void note_end(CellEnd& end, const CodeResult& part) {
  RankSet completed;
  for (const auto& [rank, status] : part.rank_status)
    if (status == CellStatus::ok) completed.insert(rank);
  end.completed = end.began ? end.completed & completed : completed;
  end.began = end.began || !part.rank_status.empty();
}

}  // namespace

CellOutcome Session::run_cell(const std::string& text, const std::string& title) {
  RunningCell cell;
  cell.title = title;
  cell.text = text;
  state_->cell = &cell;
  const ActivityReporter::Scope reporting(events_);
  const Watched typing(state_->loop, typing_fd_, state_->typed);  // a copy: the callback may end the watching
  if (state_->runner) state_->runner->begin_cell();
  journal().begin_cell(
      {.number = next_cell(), .title = title, .text = text, .ranks = started() ? live_target() : RankSet()});
  CellOutcome outcome;
  const auto fail = [&](CellStatus status, const char* type, const std::string& what) {
    cell.status = status;
    show(ErrorEvent{.cell = cell.number, .ranks = {}, .type = type, .message = what});
  };
  try {
    run_parts(cell, outcome);
  } catch (const UsageError& error) {
    fail(CellStatus::usage_error, "usage_error", error.what());
  } catch (const StartError& error) {
    journal().take(ErrorEvent{.cell = 0, .ranks = {}, .type = "start_error", .message = error.what()});
    journal().end_cell(0, {}, CellStatus::error, 0);
    state_->cell = nullptr;
    throw;
  } catch (const std::exception& error) {
    fail(CellStatus::error, "session_error", error.what());
  }
  outcome.cell = cell.number;
  outcome.status = cell.status;
  if (state_->runner) {
    const std::vector<Finding>& found = state_->runner->findings();
    outcome.findings.insert(outcome.findings.end(), found.begin(), found.end());
    outcome.before_interrupt = state_->runner->before_interrupt();
  }
  if (cell.number > 0 && cell.status != CellStatus::waiting) {
    cell.event.cell = cell.number;
    cell.event.title = title;
    cell.event.status = cell.status;
    show(cell.event);
  }
  if (state_->runner) state_->runner->advise_after_deaths();
  const auto faults = std::ranges::count(outcome.findings, Severity::fault, &Finding::severity);
  journal().end_cell(cell.number, cell.event.ranks, cell.status, static_cast<int>(faults));
  history().add({cell.number, title, text, cell.event.ranks, cell.status, faults});
  state_->cell = nullptr;
  return outcome;
}

void Session::run_parts(RunningCell& cell, CellOutcome& outcome) {
  const auto& registry = MagicRegistry::instance();
  const bool is_python = language() == Language::python && !is_cpp_cell(cell.text);
  const ParsedCell parsed =
      is_python ? parse_python_cell(cell.text, registry, kind() == PromptKind::job)
                : parse_cell(cell.text, registry, [this](const std::string& name) { return is_name(name); });
  for (const auto& use : parsed.cell_magics) check_magic(use.name, "%%");
  for (const auto& part : parsed.parts)
    if (!part.is_code) check_magic(part.magic.name, "%");
  for (const auto& use : parsed.cell_magics) {
    const Magic& magic = registry.find(use.name, true);
    MagicCall call{*this, use.arguments, parsed.body, use.line, magic.read(MagicForm::cell, use.arguments)};
    magic.cell(call, cell.settings);
  }
  // Cells over a job that trains run between two steps of it.
  struct Release {
    Session* session = nullptr;
    ~Release() {
      if (session) session->release_job();
    }
  } release;
  if (options().job && parsed.has_code()) {
    start();
    if (live_ranks().empty() && !state_->job->away().empty()) {
      if (!stop_job()) {
        cell.status = CellStatus::interrupted;
        return;
      }
      release.session = this;
    }
  }
  if (settings_.before_each_cell && parsed.has_code()) {
    CellSettings settings;
    settings.ranks = cell.settings.ranks ? *cell.settings.ranks : target_ranks();
    if (const CodeResult result = run_code(settings_.before_each_cell(*settings.ranks), settings, 1);
        result.status == CellStatus::compile_error ||
        (result.status == CellStatus::timeout && result.rank_status.empty()))
      settings_.before_each_cell = nullptr;
    if (cell.status != CellStatus::ok) return;
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
    if (cell.status != CellStatus::ok) return;
  }
  try {
    run_parts_between(cell, parsed, outcome);
  } catch (const UsageError&) {
    cell.end.completed = {};
    run_after(cell);
    throw;
  }
  run_after(cell);
}

CellOutcome Session::run_line_magic(const MagicUse& use) {
  const Magic& magic = MagicRegistry::instance().find(use.name, false);
  MagicCall call{*this, use.arguments, {}, use.line, magic.read(line_form(), use.arguments)};
  constexpr std::array<std::string_view, 6> kOfRanks = {"record",     "restart",       "dist_init",
                                                        "dist_reset", "dist_shutdown", "dist_continue"};
  if (options().replay && std::ranges::count(kOfRanks, magic.name) > 0) {
    message("%" + magic.name + " does nothing in a replay, which has one rank");
    return {};
  }
  if (!magic.line && kind() == PromptKind::cpp)
    throw UsageError("%" + magic.name + " is for ranks in Python; " + usage_of(magic, MagicForm::line) + ": " +
                     magic.summary);
  const bool is_job_line = kind() == PromptKind::job || (kind() == PromptKind::python && !magic.in_sessions);
  return is_job_line && magic.job_line ? magic.job_line(call) : magic.line(call);
}

/// Magics that compile C++ are for ranks in C++, those that concern the processes of a session not for jobs.
void Session::check_magic(const std::string& name, const char* signs) const {
  if (kind() == PromptKind::cpp || !MagicRegistry::instance().knows(name)) return;
  const auto magics = MagicRegistry::instance().available(kind());
  if (std::ranges::any_of(magics, [&](const Magic* each) { return each->name == name; })) return;
  throw UsageError(std::string(signs) + name +
                   (kind() == PromptKind::python
                        ? " is not for sessions whose ranks are Python (%help)"
                        : " is for sessions of C++ cells; a Python job does not have it (%help)"));
}

/// Has a cell defined it? A session that has not started has no names.
bool Session::is_name(const std::string& name) {
  if (!started()) return false;
  const auto response = ask(protocol::ListNames{});
  const auto* list = std::get_if<protocol::Names>(&response);
  return list && std::any_of(list->names.begin(), list->names.end(),
                             [&](const protocol::Name& known) { return known.name == name; });
}

/// What a cell magic has to do at the end, on the ranks that are still there.
void Session::run_after(RunningCell& cell) {
  if (!cell.settings.after || cell.status == CellStatus::waiting) return;
  CellSettings settings = cell.settings;
  settings.ranks =
      settings.ranks.value_or(options().replay ? cell_ranks() : target_ranks()) & (cell_ranks() - busy_ranks());
  if (!settings.ranks->empty()) run_code(cell.settings.after(settings, cell.end), settings, 1);
}

void Session::run_parts_between(RunningCell& cell, const ParsedCell& parsed, CellOutcome& outcome) {
  CodeResult total;
  for (const auto& part : parsed.parts) {
    if (part.is_code) {
      const CodeResult result = run_code(part.code, cell.settings, 1);
      total.compile_ms += result.compile_ms;
      for (const auto& [rank, ms] : result.run_ms) total.run_ms[rank] += ms;
      note_end(cell.end, result);
      if (!result.out_of_memory.empty()) explain_out_of_memory(*this, result.out_of_memory);
    } else {
      cell.magic = "%" + part.magic.name + (part.magic.arguments.empty() ? "" : " " + part.magic.arguments);
      CellOutcome result = run_line_magic(part.magic);
      cell.magic.clear();
      if (cell.status == CellStatus::ok) cell.status = result.status;
      outcome.exit_requested = outcome.exit_requested || result.exit_requested;
      for (Finding& each : result.findings) {
        if (!each.cell && cell.number > 0) each.cell = cell.number;
        show(FindingEvent{each});
      }
      outcome.findings.insert(outcome.findings.end(), result.findings.begin(), result.findings.end());
    }
    if (cell.status == CellStatus::ok && !outcome.exit_requested) continue;
    if (&part != &parsed.parts.back()) cell.end.completed = {};
    break;
  }
  if (cell.settings.time && parsed.has_code()) {
    TimeReport report = time_report(total);
    message(std::move(report.text), std::move(report.data));
  }
}

}  // namespace lockstep::shell
