#include "shell/session/session.h"

#include "shell/session/outcome.h"
#include "shell/session/session_impl.h"

namespace lockstep::shell {

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
std::string Session::target_words() const { return impl_->target_words(); }
int64_t Session::next_cell() const { return impl_->next_number(); }
CellOutcome Session::run(const std::string& text, const std::string& title) {
  // Cells that %load has queued belong to this call, however it ends: an exception (a start that fails) leaves none for the next cell.
  struct Queue {
    std::vector<ScriptCell>& cells;
    ~Queue() { cells.clear(); }
  } queued{impl_->queued};
  CellOutcome outcome = impl_->run(text, title);
  for (size_t k = 0; k < queued.cells.size() && outcome.status == "ok" && !outcome.exit_requested; ++k) {
    const ScriptCell cell = queued.cells[k];  // a copy: it may be a %load itself
    if (cell.markdown) {
      impl_->events.take(MarkdownEvent{cell.text});
      continue;
    }
    const CellOutcome next = impl_->run(cell.text, cell.title);
    outcome.cell = next.cell;
    outcome.exit_requested = next.exit_requested;
    outcome.before_interrupt = next.before_interrupt;
    if (judge(cell.tags, next, {}).exit_code == kExitOk) continue;
    outcome.status = next.status == "ok" && next.findings.empty() ? "error" : next.status;
    outcome.findings.insert(outcome.findings.end(), next.findings.begin(), next.findings.end());
    if (!next.findings.empty()) break;
  }
  return outcome;
}
void Session::serve(int fd, std::optional<std::chrono::milliseconds> limit) { impl_->serve(fd, limit); }
void Session::interrupt() noexcept { impl_->ask_from_signal(Impl::Asked::interrupt); }
void Session::leave() noexcept { impl_->ask_from_signal(Impl::Asked::leave); }
void Session::give_up_question() noexcept { impl_->ask_from_signal(Impl::Asked::give_up_question); }
bool Session::interrupt_busy_ranks() { return impl_->interrupt_busy_ranks(); }
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
