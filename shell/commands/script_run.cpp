#include "shell/commands/script_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "protocol/error.h"
#include "shell/processes/session_plan.h"
#include "shell/processes/signal_scope.h"
#include "shell/scripts/details.h"
#include "shell/scripts/python_cell.h"
#include "shell/text/screen.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

/// Whether a cell has comments and blanks alone: nothing of it runs, and it gets no number.
bool is_comment(const ScriptCell& cell, Language language) {
  try {
    if (language == Language::python && is_cpp_cell(cell.text)) return false;
    const ParsedCell parsed = language == Language::python ? parse_python_cell(cell.text, MagicRegistry::instance())
                                                           : parse_cell(cell.text, MagicRegistry::instance());
    return parsed.parts.empty() && parsed.cell_magics.empty();
  } catch (const UsageError&) {  // reported when it runs
    return false;
  }
}

}  // namespace

ScriptRun::ScriptRun(RunOptions options, std::vector<Script> scripts)
    : options_(std::move(options)), scripts_(std::move(scripts)) {}

int ScriptRun::run() {
  if (!options_.session.job) plan_session(options_.session);
  const int people = options_.json == "-" ? STDERR_FILENO : STDOUT_FILENO;
  output_ =
      std::make_unique<TextOutput>(people, "the output", [this](size_t dropped) { renderer_->drop_output(dropped); });
  screen_ = detect_screen(people);
  renderer_ = std::make_unique<Renderer>(screen_, [this](std::string_view text) {
    output_->write(text, renderer_->draws_output());
    check(*output_);
  });
  renderer_->set_brief(true);
  sinks_.add(*renderer_);
  const Screen status_screen = detect_screen(STDERR_FILENO);
  if (!screen_.terminal && status_screen.terminal && people != STDERR_FILENO) {
    status_output_ = std::make_unique<TextOutput>(STDERR_FILENO, "the status");
    status_ =
        std::make_unique<StatusDisplay>(status_screen, [this](std::string_view text) { status_output_->write(text); });
    sinks_.add(*status_);
  }
  options_.session.reports_activity = screen_.terminal || status_;
  if (!options_.json.empty()) {
    json_ = std::make_unique<JsonWriter>(options_.json);
    sinks_.add(*json_);
  }
  if (!options_.junit.empty()) {
    junit_ = std::make_unique<JunitReport>(options_.junit);
    sinks_.add(*junit_);
  }
  if (!options_.write.empty()) {
    notebook_ = std::make_unique<NotebookOutputs>(options_.files.front(), options_.write);
    sinks_.add(*notebook_);
  }

  EventSink& events = *this;
  session_ = std::make_unique<Session>(options_.session, events);
  current_ = this;
  {
    const SignalScope signals([](int signal) { current_->on_signal(signal); });
    bool going = true;
    try {
      for (const Script& script : scripts_) {
        if (junit_) junit_->begin_script(script.name);
        if (going)
          going = run_script(script);
        else
          skip_rest(script, 0);
      }
    } catch (const StartError& error) {
      if (stopped_) {
        note(kExitInterrupted);
      } else {
        take(ErrorEvent{.cell = 0, .ranks = {}, .type = "start_error", .message = error.what()});
        if (junit_) junit_->fail_start(error.what());
        note(kExitNoStart);
      }
    }
    session_->run_on_preempt();
    session_->shutdown();
  }
  session_.reset();
  if (notebook_ && !notebook_->write()) note(kExitFailed);
  if (junit_ && !junit_->write()) note(kExitFailed);
  take(EndEvent{exit_code_, {{"cells", cells_}, {"failed", failed_}, {"faults", faults_}}});
  return exit_code_;
}

bool ScriptRun::run_script(const Script& script) {
  script_ = &script;
  for (size_t i = 0; i < script.cells.size(); ++i) {
    const ScriptCell& cell = script.cells[i];
    if (cell.markdown) {
      show_markdown(cell);
      continue;
    }
    const bool begins = !stopped_;
    if (begins && run_cell(cell)) continue;
    skip_rest(script, begins ? i + 1 : i);
    return false;
  }
  return true;
}

void ScriptRun::skip_rest(const Script& script, size_t begin) {
  for (size_t i = begin; junit_ && i < script.cells.size(); ++i)
    if (!script.cells[i].markdown && !is_comment(script.cells[i], language())) junit_->skip_cell(script.cells[i]);
}

RankSet ScriptRun::lost_ranks() const {
  if (!session_->started()) return {};  // they were ended on purpose
  return alive_ - (session_->live_ranks() | session_->departed_ranks());
}

bool ScriptRun::run_cell(const ScriptCell& cell) {
  const bool counts = !is_comment(cell, language());
  if (cell.number >= session_->next_cell()) session_->set_next_cell(cell.number);
  alive_ = session_->live_ranks();
  show_cell(cell, counts);
  if (!counts) return true;
  cell_ = &cell;
  findings_.clear();
  if (junit_) junit_->begin_cell(cell);
  if (notebook_) notebook_->begin_cell(cell);
  const CellOutcome outcome = session_->run(cell.text, cell.title);
  const CellJudgement judgement = judge(cell.tags, outcome, lost_ranks());
  ++cells_;
  failed_ += judgement.failed ? 1 : 0;
  faults_ += judgement.faults;
  for (const auto& complaint : judgement.complaints)
    take(ErrorEvent{.cell = outcome.cell, .ranks = {}, .type = "expectation", .message = complaint});
  show_expected(cell, judgement);
  show_before(cell, outcome.status);
  if (junit_) junit_->end_cell(outcome, judgement);
  if (notebook_) notebook_->end_cell(outcome);
  cell_ = nullptr;
  if (outcome.before_interrupt) {
    note(code_before_interrupt(cell.tags, *outcome.before_interrupt, alive_));
    note(kExitInterrupted);
  }
  if (const auto goes_on = judge_replay(judgement.exit_code)) return *goes_on && !stopped_;
  note(judgement.exit_code);
  if (stopped_) note(kExitInterrupted);
  if (outcome.exit_requested || outcome.status == CellStatus::interrupted || stopped_) return false;
  return judgement.exit_code == kExitOk || options_.keep_going;
}

/// Judges a cell of a replay by how far that is the recorded run, and returns whether the next cell runs. Nothing: the cell
/// is judged as any other, with `exit_code`.
std::optional<bool> ScriptRun::judge_replay(int exit_code) {
  if (!options_.session.replay) return std::nullopt;
  if (session_->started() && session_->live_ranks().empty()) {  // the rank has died again
    note(exit_code);
    return false;
  }
  const auto state = session_->replay_state();
  if (!state) return std::nullopt;
  if (state->departed) {
    note(kExitFailed);
    return false;
  }
  if (state->over) return false;
  return state->skipping ? std::optional(true) : std::nullopt;
}

void ScriptRun::show_markdown(const ScriptCell& cell) {
  const char* const sign = signs(screen_).prompt;
  renderer_->take(
      MarkdownEvent{options_.answers ? with_open_details(cell.text, sign) : with_folded_details(cell.text, sign)});
  if (json_) json_->take(MarkdownEvent{cell.text});
  session_->journal().take(MarkdownEvent{cell.text});
}

void ScriptRun::show_cell(const ScriptCell& cell, bool counts) {
  const bool code_follows = options_.show_code && (!cell.title.empty() || lines_of(cell.text).size() > 1);
  renderer_->begin_cell(counts ? session_->next_cell() : 0, session_->started() ? session_->target_ranks() : RankSet(),
                        cell.title, cell.text);
  if (!code_follows) return;
  std::string text;
  for (const std::string_view line : lines_of(cell.text))
    text += line.empty() ? "\n" : "    " + paint(screen_, Style::dim, without_controls(line)) + "\n";
  renderer_->show(text);
}

/// Shows after a cell that its errors and findings are what its tags say, so that nobody takes them for failures.
void ScriptRun::show_expected(const ScriptCell& cell, const CellJudgement& judgement) {
  if (judgement.failed || judgement.faults > 0) return;
  std::vector<std::string> words;
  for (const Tag& tag : cell.tags) {
    if (tag.name == "raises-exception") words.emplace_back("an exception");
    if (tag.name == "expects-finding") words.push_back(tag.value.empty() ? "a finding" : tag.value);
  }
  if (words.empty()) return;
  renderer_->show(paint(screen_, Style::good,
                        without_controls(fmt::format("{} expected: {}", signs(screen_).good, fmt::join(words, ", ")))) +
                  "\n");
}

/// Shows after a cell that it had failed when it ran before.
void ScriptRun::show_before(const ScriptCell& cell, CellStatus status) {
  const auto tag = std::ranges::find(cell.tags, kFailedBefore, &Tag::name);
  if (tag == cell.tags.end()) return;
  renderer_->show(paint(screen_, Style::note,
                        fmt::format("{} this cell failed before ({}){}", signs(screen_).note, tag->value,
                                    status == CellStatus::ok ? "" : ", and may fail again")) +
                  "\n");
}

void ScriptRun::take(const Event& event) {
  if (const auto* finding = std::get_if<FindingEvent>(&event)) findings_.push_back(finding->finding);
  // These were ended on purpose.
  if (const auto* session = std::get_if<SessionEvent>(&event); session && !session->has_grown) alive_ = RankSet();
  if (const auto* rank = std::get_if<RankEvent>(&event); rank && rank->state == RankState::ending)
    alive_.erase(rank->rank);
  const auto* ended = std::get_if<CellEvent>(&event);
  if (ended && cell_) {
    CellOutcome outcome;
    outcome.status = ended->status;
    outcome.findings = findings_;
    const CellJudgement judgement = judge(cell_->tags, outcome, lost_ranks());
    CellEvent judged = *ended;
    judged.file = script_->name;
    if (cell_->line > 0) judged.line = cell_->line;
    judged.expected = !judgement.failed && judgement.faults == 0;
    sinks_.take(judged);
  } else {
    sinks_.take(event);
  }
  if (json_) check(json_->output());
}

void ScriptRun::on_signal(int signal) noexcept {
  stopped_ = true;
  output_->interrupt();
  if (json_) json_->output().interrupt();
  if (signal == SIGINT)
    session_->interrupt();
  else
    session_->leave(signal);
}

/// Ends a run whose output is lost: that is no success. Where nobody reads any more it stops, as programs in a pipe do.
void ScriptRun::check(const TextOutput& output) {
  if (output.lost()) note(kExitFailed);
  if (!output.closed() || std::exchange(stopped_for_readers_, true) || !session_) return;
  stopped_ = true;
  session_->leave(SIGPIPE);
}

/// Notes an exit code. The first thing that went wrong decides.
void ScriptRun::note(int exit_code) {
  if (exit_code_ == kExitOk) exit_code_ = exit_code;
}

}  // namespace lockstep::shell
