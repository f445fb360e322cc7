#include "shell/jobs/job_prompts.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>

#include "protocol/blocked_signals.h"
#include "protocol/error.h"
#include "shell/processes/launcher.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kTogether{300};  // ranks that come to a breakpoint one after the other
constexpr int kTerminal = STDIN_FILENO;

/// A group in the background may set the foreground group and the modes, if it does not take the signal for that.
class NoTerminalStop {
 public:
  NoTerminalStop() {
    sigset_t stop;
    ::sigemptyset(&stop);
    ::sigaddset(&stop, SIGTTOU);
    ::sigprocmask(SIG_BLOCK, &stop, &before_);
  }
  ~NoTerminalStop() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  NoTerminalStop(const NoTerminalStop&) = delete;
  NoTerminalStop& operator=(const NoTerminalStop&) = delete;

 private:
  sigset_t before_{};
};

bool has_terminal() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 && ::tcgetpgrp(kTerminal) == ::getpgrp();
}

bool is_stopped(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const size_t end_of_name = text.rfind(')');
  return end_of_name != std::string::npos && text.size() > end_of_name + 2 && text[end_of_name + 2] == 'T';
}

/// Returns the descriptor that a system call waits for, by its number and first argument. Of several it is the last.
std::optional<uint64_t> descriptor_of_wait(long number, uint64_t argument) {
  if (number == SYS_read) return argument;
#ifdef SYS_select
  if (number == SYS_select && argument > 0) return argument - 1;
#endif
  if (number == SYS_pselect6 && argument > 0) return argument - 1;  // readline's
  return std::nullopt;
}

/// Whether a thread of the process waits for what is typed at `terminal`: it would take the prompt's keys.
bool reads_terminal(pid_t pid, const std::string& terminal) {
  std::error_code error;
  for (fs::directory_iterator entry(fmt::format("/proc/{}/task", pid), error), end; !error && entry != end;
       entry.increment(error)) {
    std::ifstream file(entry->path() / "syscall");
    long number = -1;
    uint64_t argument = 0;
    if (!(file >> number >> std::hex >> argument)) continue;  // it runs
    const std::optional<uint64_t> descriptor = descriptor_of_wait(number, argument);
    std::error_code gone;
    if (descriptor && fs::read_symlink(fmt::format("/proc/{}/fd/{}", pid, *descriptor), gone) == terminal) return true;
  }
  return false;
}

/// Returns a process of this group, or one of `ranks`, that reads the terminal.
std::optional<pid_t> reader_of_terminal(const std::vector<JobMember>& ranks) {
  const char* name = ::ttyname(kTerminal);
  if (!name) return std::nullopt;
  for (const JobMember& each : ranks)
    if (reads_terminal(static_cast<pid_t>(each.facts.pid), name)) return static_cast<pid_t>(each.facts.pid);
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const pid_t pid = std::atoi(entry->path().filename().c_str());
    if (pid > 0 && ::getpgid(pid) == ::getpgrp() && reads_terminal(pid, name)) return pid;
  }
  return std::nullopt;
}

[[noreturn]] void serve_in_child(const ServePrompt& serve, const std::string& job, int64_t first_cell, const Pipe& go,
                                 const Pipe& report, pid_t parent, const BlockedSignals& signals) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGHUP);  // the prompt closes, and the ranks go on
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) ::signal(number, SIG_DFL);
  signals.restore();
  char byte;
  read_all(go.read.get(), &byte, 1);
  // The shell that has started this job knows nothing of this process, and could not let it go on.
  ::signal(SIGTSTP, SIG_IGN);
  int code = 0;
  if (::getppid() == parent) {
    try {
      const int64_t next = serve(job, first_cell);
      write_all(report.write.get(), {reinterpret_cast<const char*>(&next), sizeof next});
    } catch (const std::exception& error) {
      write_message(error.what());
      code = 3;
    }
  }
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

JobPrompts::JobPrompts(EventLoop& loop, std::string job, ServePrompt serve)
    : loop_(loop), job_(std::move(job)), serve_(std::move(serve)), gathering_(loop) {}

JobPrompts::~JobPrompts() {
  gathering_.cancel();
  if (process_ < 0) return;
  signal_process(pidfd_.get(), SIGTERM);
  loop_.forget(pidfd_.get());
  ranks_.clear();
  closed();
}

JobPrompts::Process JobPrompts::process_of(const JobMember& rank) { return {rank.facts.pid, rank.facts.start_time}; }

void JobPrompts::take(std::vector<JobMember> ranks, pid_t launcher) {
  ranks_ = std::move(ranks);
  launcher_ = launcher;
  look();
}

bool JobPrompts::is_anyone_stopped() const {
  return process_ >= 0 ||
         std::ranges::any_of(ranks_, [](const JobMember& each) { return each.facts.stop.has_value(); });
}

std::vector<const JobMember*> JobPrompts::waiting() const {
  std::vector<const JobMember*> result;
  for (const JobMember& each : ranks_) {
    if (!each.facts.stop || each.facts.stop->is_served || each.facts.end) continue;
    const auto left = left_.find(process_of(each));
    if (left == left_.end() || left->second != each.facts.stop->number) result.push_back(&each);
  }
  return result;
}

void JobPrompts::look() {
  if (process_ >= 0) return;
  const auto ranks = waiting();
  if (ranks.empty()) return;
  if (ranks.size() == ranks_.size()) {
    gathering_.cancel();
    open_or_tell();
  } else if (!gathering_.is_set()) {
    gathering_.set_after(kTogether, [this] { open_or_tell(); });
  }
}

void JobPrompts::open_or_tell() {
  const auto ranks = waiting();
  if (process_ >= 0 || ranks.empty()) return;
  if (serve_ && has_terminal() && !reader_of_terminal(ranks_) && open()) return;
  tell(ranks);
}

void JobPrompts::tell(const std::vector<const JobMember*>& ranks) {
  std::map<std::pair<std::string, std::optional<double>>, RankSet> places;
  for (const JobMember* each : ranks) {
    int64_t& told = told_[process_of(*each)];
    if (std::exchange(told, each->facts.stop->number) == each->facts.stop->number) continue;
    places[{each->facts.stop->place, each->facts.stop->limit_s}].insert(each->facts.rank);
  }
  for (const auto& [where, which] : places) {
    const bool one = which.size() == 1;
    write_message(
        fmt::format("{} {} in breakpoint() at {}, {}; `lockstep attach {}` opens a prompt, with --run FILE it runs "
                    "the cells of a file",
                    which.words(), one ? "waits" : "wait", where.first,
                    where.second ? fmt::format("and {} on after {:g} s", one ? "goes" : "go", *where.second)
                                 : "without a limit (LOCKSTEP_BREAKPOINT_TIMEOUT=S sets one)",
                    job_));
  }
}

bool JobPrompts::open() {
  if (::tcgetattr(kTerminal, &modes_) != 0) return false;
  Pipe go, report;
  try {
    go = make_pipe(), report = make_pipe();
  } catch (const StartError&) {  // no descriptor is left: the job goes on, and a line says how to attach
    return false;
  }
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const BlockedSignals signals;  // the handlers of this program are not the child's
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) {
    go.write.reset();
    serve_in_child(serve_, job_, next_cell_, go, report, parent, signals);
  }
  signals.restore();
  ::setpgid(child, child);  // in both, whichever runs first
  Descriptor pidfd = open_process(child);
  {
    const NoTerminalStop no_stop;
    if (!pidfd || ::tcsetpgrp(kTerminal, child) != 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      return false;
    }
  }
  // When a process of the launcher's group reads the terminal, the signal goes to this one, too.
  ::signal(SIGTTIN, SIG_IGN);
  process_ = child;
  pidfd_ = std::move(pidfd);
  report_ = std::move(report.read);
  write_all(go.write.get(), "g");
  loop_.watch(pidfd_.get(), [this] {
    loop_.forget(pidfd_.get());
    closed();
  });
  return true;
}

void JobPrompts::closed() {
  int status = 0;
  uninterrupted([&] { return ::waitpid(process_, &status, 0); });
  process_ = -1;
  {
    const NoTerminalStop no_stop;
    ::tcsetpgrp(kTerminal, ::getpgrp());
    ::tcsetattr(kTerminal, TCSADRAIN, &modes_);
  }
  ::signal(SIGTTIN, SIG_DFL);
  if (launcher_ > 0 && is_stopped(launcher_)) ::kill(0, SIGCONT);  // it has read the terminal meanwhile
  int64_t next = 0;
  const bool is_clean = read_all(report_.get(), &next, sizeof next) == sizeof next;
  if (is_clean) next_cell_ = next;
  report_.reset();
  pidfd_.reset();
  if (!is_clean) {
    for (const JobMember& each : ranks_)
      if (each.facts.stop) left_[process_of(each)] = each.facts.stop->number;
    if (WIFSIGNALED(status) && !ranks_.empty()) std::fputs("\n", stderr);  // after what it had typed
    write_message(fmt::format("the prompt was killed by {}; `lockstep attach {}` opens another one",
                              signal_name(WTERMSIG(status)), job_));
  }
  look();
}

}  // namespace lockstep::shell
