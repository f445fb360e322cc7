#include "shell/session/session.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "protocol/error.h"
#include "shell/scripts/magic_parser.h"
#include "shell/session/outcome.h"
#include "shell/session/session_state.h"

namespace lockstep::shell {

Session::Session(SessionOptions options, EventSink& events) : SessionCore(std::move(options), events) {
  set_nonblocking(signals_.read.get());
  set_nonblocking(signals_.write.get());
  loop().watch(signals_.read.get(), [this] {
    char bytes[16];
    const auto n = ::read(signals_.read.get(), bytes, sizeof bytes);
    for (int i = 0; i < n; ++i) take(static_cast<Asked>(bytes[i]));
  });
}

Session::~Session() {
  shutdown();
  loop().forget(signals_.read.get());
}

std::string Session::target_words() const {
  if (!started()) return "";
  if (live_ranks().empty()) return options().job ? "no rank" : "all ranks dead";
  const RankSet ranks = live_target();
  return ranks.empty() ? settings_.target->words() + " dead" : ranks.words();
}

void Session::set_next_cell(int64_t number) { state_->last_number = number - 1; }

CellOutcome Session::run(const std::string& text, const std::string& title) {
  // Cells that %load has queued belong to this call, however it ends: an exception (a start that fails) leaves none for
  // the next cell.
  struct Queue {
    std::vector<ScriptCell>& cells;
    ~Queue() { cells.clear(); }
  } queued{settings_.queued};
  CellOutcome outcome = run_cell(text, title);
  for (size_t k = 0; k < queued.cells.size() && outcome.status == CellStatus::ok && !outcome.exit_requested; ++k) {
    const ScriptCell cell = queued.cells[k];  // a copy: it may be a %load itself
    if (cell.markdown) {
      show(MarkdownEvent{cell.text});
      continue;
    }
    const CellOutcome next = run_cell(cell.text, cell.title);
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

void Session::serve(int fd, std::optional<std::chrono::milliseconds> limit) {
  State& s = *state_;
  bool readable = false;
  if (fd >= 0) s.loop.watch(fd, [&] { readable = true; });
  std::optional<EventLoop::Clock::time_point> deadline;
  if (limit) deadline = EventLoop::Clock::now() + *limit;
  try {
    s.loop.run_until([&] { return readable; }, deadline);
  } catch (const ChannelError& error) {
    show(ErrorEvent{.cell = 0, .ranks = {}, .type = "session_error", .message = error.what()});
  }
  if (fd >= 0) s.loop.forget(fd);
}

void Session::watch_typing(int fd, std::function<void()> typed) {
  if (typing_fd_ >= 0) loop().forget(typing_fd_);
  typing_fd_ = fd;
  state_->typed = std::move(typed);
}

bool Session::run_now(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t");
  if (!started() || begin == std::string::npos || line[begin] != '%' || line.compare(begin, 2, "%%") == 0) return false;
  const size_t end = std::min(line.find_first_of(" \t", begin), line.size());
  const std::string name = line.substr(begin + 1, end - begin - 1);
  const auto magics = MagicRegistry::instance().all();
  const auto magic = std::find_if(magics.begin(), magics.end(),
                                  [&](const Magic* each) { return each->name == name && each->at_any_time; });
  if (magic == magics.end()) return false;
  message(line.substr(begin));  // it was typed without an echo
  try {
    run_line_magic(parse_cell(line, MagicRegistry::instance()).parts.at(0).magic);
  } catch (const UsageError& error) {
    show(ErrorEvent{.cell = current_number(), .ranks = {}, .type = "usage_error", .message = error.what()});
  }
  return true;
}

// ---- Interrupts -----------------------------------------------------------------------------------------------------

void Session::send(Asked what) noexcept {
  const char byte = static_cast<char>(what);
  (void)!::write(signals_.write.get(), &byte, 1);
}

void Session::take(Asked what) {
  const State& s = *state_;
  if (what == Asked::preempt) return take_preemption();
  if (what == Asked::leave && preempted_until_) return;  // what reads the output may be gone while ranks save
  if (s.runner && what == Asked::leave) s.runner->leave();
  if (s.runner && what == Asked::interrupt) s.runner->user_interrupt();
  if (s.interrupt_command) s.interrupt_command();
  if (s.compiler) s.compiler->cancel();
  if (s.workers && !s.runner) s.workers->cancel_start("interrupted");
}

bool Session::interrupt_busy_ranks() {
  const RankSet ranks = busy_ranks();
  if (ranks.empty()) return false;
  interrupt(ranks);
  if (const RankSet left = busy_ranks() & ranks; !left.empty())
    message(left.words() + " did not come back; %hang and %stack say where", {{"ranks", left}});
  return true;
}

}  // namespace lockstep::shell
