#include "shell/session/session.h"

#include "shell/scripts/completeness.h"
#include "shell/scripts/python_cell.h"
#include "shell/session/completion.h"
#include "shell/session/outcome.h"
#include "shell/session/python_questions.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {

Session::Session(SessionOptions options, EventSink& events)
    : core_(std::make_unique<SessionCore>(std::move(options), events)) {}
Session::~Session() = default;

const SessionOptions& Session::options() const { return core_->options; }
SessionOptions& Session::options() { return core_->options; }
void Session::start() { core_->start(); }
void Session::shutdown() { core_->shutdown(); }
bool Session::started() const { return core_->started(); }
int Session::world_size() const { return core_->world_size(); }
RankSet Session::live_ranks() const { return core_->live_ranks(); }
RankSet Session::away_ranks() const { return core_->away_ranks(); }
RankSet Session::target_ranks() const { return core_->started() ? core_->target_ranks() : RankSet(); }
std::string Session::target_words() const { return core_->target_words(); }
std::optional<std::string> Session::text_of_cell(std::optional<int64_t> number) const {
  for (auto entry = core_->history.rbegin(); entry != core_->history.rend(); ++entry)
    if (number ? entry->number == *number : entry->number > 0) return entry->text;
  return std::nullopt;
}
int64_t Session::next_cell() const { return core_->next_number(); }
void Session::set_next_cell(int64_t number) { core_->set_next_number(number); }
EventLoop& Session::loop() { return core_->loop(); }
CellOutcome Session::run(const std::string& text, const std::string& title) {
  // Cells that %load has queued belong to this call, however it ends: an exception (a start that fails) leaves none for
  // the next cell.
  struct Queue {
    std::vector<ScriptCell>& cells;
    ~Queue() { cells.clear(); }
  } queued{core_->queued};
  CellOutcome outcome = core_->run(text, title);
  for (size_t k = 0; k < queued.cells.size() && outcome.status == CellStatus::ok && !outcome.exit_requested; ++k) {
    const ScriptCell cell = queued.cells[k];  // a copy: it may be a %load itself
    if (cell.markdown) {
      core_->events.take(MarkdownEvent{cell.text});
      continue;
    }
    const CellOutcome next = core_->run(cell.text, cell.title);
    outcome.cell = next.cell;
    outcome.exit_requested = next.exit_requested;
    outcome.before_interrupt = next.before_interrupt;
    if (judge(cell.tags, next, {}).exit_code == kExitOk) continue;
    outcome.status = next.status == CellStatus::ok && next.findings.empty() ? CellStatus::error : next.status;
    outcome.findings.insert(outcome.findings.end(), next.findings.begin(), next.findings.end());
    if (!next.findings.empty()) break;
  }
  return outcome;
}
void Session::serve(int fd, std::optional<std::chrono::milliseconds> limit) { core_->serve(fd, limit); }
void Session::interrupt() noexcept { core_->ask_from_signal(SessionCore::Asked::interrupt); }
void Session::leave() noexcept { core_->ask_from_signal(SessionCore::Asked::leave); }
void Session::give_up_question() noexcept { core_->ask_from_signal(SessionCore::Asked::give_up_question); }
bool Session::interrupt_busy_ranks() { return core_->interrupt_busy_ranks(); }
void Session::watch_typing(int fd, std::function<void()> typed) {
  core_->stop_watching_typing();
  core_->input_fd = fd;
  core_->input = std::move(typed);
}
bool Session::run_now(const std::string& line) { return core_->run_now(line); }

Completeness Session::is_complete(const std::string& text) {
  const bool is_python = core_->language() == Language::python && !is_cpp_cell(text);
  return is_python ? python_completeness(*core_, text) : completeness(text);
}

protocol::Completions Session::complete(const std::string& text, int64_t offset) {
  return complete_cell(*core_, text, offset);
}

std::vector<protocol::Signature> Session::signatures(const std::string& text, int64_t offset) {
  return signatures_in_cell(*core_, text, offset);
}

Description Session::inspect(const std::string& expression, bool with_source) {
  return describe(*core_, expression, with_source);
}

Description Session::inspect_at(const std::string& text, int64_t offset, bool with_source) {
  return describe_at(*core_, text, offset, with_source);
}

}  // namespace lockstep::shell
