#include "shell/jobs/rank_ends.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <vector>

#include "inspectors/remains/stack_text.h"
#include "protocol/files.h"
#include "protocol/read_json.h"
#include "shell/processes/deaths.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

// Fields of proc(5), /proc/pid/stat. The state is the third and the first after the name, which may have spaces.
constexpr size_t kState = 0, kFlags = 9 - 3, kStartTime = 22 - 3, kExitCode = 52 - 3;
constexpr int kLastSignal = 64;
// Flags of a thread in the kernel (include/linux/sched.h).
constexpr unsigned long kExiting = 0x4;  // PF_EXITING: the thread has begun to exit
constexpr unsigned long kSignaled = 0x400;  // PF_SIGNALED: the thread has taken a signal that ends its process

/// Returns the fields of `folder`/stat, for a process or a thread. Empty if there is none.
std::vector<std::string> fields_of(const std::string& folder) {
  std::ifstream file(folder + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return {};
  std::istringstream fields(text.substr(end_of_name + 1));
  return {std::istream_iterator<std::string>(fields), {}};
}

std::string process_folder(int64_t pid) { return fmt::format("/proc/{}", pid); }

/// Whether `fields` are those of a thread that has any of `flags`.
bool has_flags(const std::vector<std::string>& fields, unsigned long flags) {
  return fields.size() > kFlags && (std::stoul(fields[kFlags]) & flags) != 0;
}

bool has_raised(const SeenEnd& end) { return end.said && end.said->how == "threw"; }

/// An exception of a data loader's worker is raised again in the rank, with the worker's traceback as its text:
///   Caught OSError in DataLoader worker process 1.
///   Original Traceback (most recent call last):
///     File "/home/me/data.py", line 12, in __getitem__
///   OSError: no such file
/// Returns the line of the worker; its own words are added to `message`, which is the first line.
std::optional<inspect::EvidenceFrame> take_worker_error(const std::string& text, std::string& message) {
  const size_t trace = text.find("\nOriginal Traceback");
  if (!message.starts_with("Caught ") || trace == std::string::npos) return std::nullopt;
  inspect::Remains worker;
  inspect::read_stack_text(std::string_view(text).substr(text.find("Traceback", trace)), "", 0, worker);
  if (worker.errors.empty()) return std::nullopt;
  const inspect::RankError& error = worker.errors.back();
  if (message.ends_with('.')) message.pop_back();
  message += fmt::format(": {}", error.message);
  const inspect::EvidenceFrame* frame = inspect::program_frame(error.frames);
  return frame ? std::optional(*frame) : std::nullopt;
}

/// Whether a launcher, or a person, ends a job by this signal.
bool is_asked_to_end(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGKILL || signal == SIGHUP || signal == SIGABRT;
}

}  // namespace

std::optional<int> wait_status_of_zombie(int64_t pid, uint64_t start_time) {
  const std::vector<std::string> fields = fields_of(process_folder(pid));
  if (fields.size() <= kExitCode || (fields[kState] != "Z" && fields[kState] != "X")) return std::nullopt;
  if (start_time != 0 && std::stoull(fields[kStartTime]) != start_time) return std::nullopt;
  return std::stoi(fields[kExitCode]);
}

// A thread that takes a deadly signal is marked before the kernel writes the core file, and stays marked until it is
// gone; the other threads follow. "CoreDumping:" of /proc/pid/status is back at 0 a moment before the exit begins.
bool is_ending(int64_t pid) {
  const std::vector<std::string> fields = fields_of(process_folder(pid));
  if (fields.size() <= kFlags || fields[kState] == "Z" || fields[kState] == "X") return true;
  if (has_flags(fields, kExiting | kSignaled)) return true;
  std::error_code gone;
  std::filesystem::directory_iterator thread(process_folder(pid) + "/task", gone);
  for (; !gone && thread != std::filesystem::directory_iterator(); thread.increment(gone))
    if (has_flags(fields_of(thread->path().string()), kSignaled)) return true;
  return static_cast<bool>(gone);
}

int64_t realtime_ns() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

bool SeenEnd::is_clean() const { return !has_raised(*this) && (wait_status ? *wait_status == 0 : said.has_value()); }

void SeenEnd::note(const std::optional<MemoryKills>& kills) {
  out_of_memory = kills && wait_status && WIFSIGNALED(*wait_status) && WTERMSIG(*wait_status) == SIGKILL;
  of_machine = out_of_memory && kills->of_machine;
}

std::string SeenEnd::words() const {
  if (!lost.empty()) return lost;
  if (has_raised(*this)) return "raised " + said->type;
  if (!wait_status) return said ? "has finished" : "has ended without an exception: it was killed, or called os._exit";
  if (WIFSIGNALED(*wait_status)) {
    const std::string killed = (said ? "has finished, and its process was killed by " : "was killed by ") +
                               signal_name(WTERMSIG(*wait_status));
    if (!said && WTERMSIG(*wait_status) == SIGABRT)
      return killed + ": a library called abort(), and its message is in the rank's output";
    if (!out_of_memory) return killed;
    return killed + out_of_memory_words(of_machine);
  }
  const int code = WEXITSTATUS(*wait_status);
  if (code == 0) return "has finished";
  if (unseen)
    return fmt::format("ended with exit code {} before it was watched: an exception of it is in its output", code);
  if (said)
    return fmt::format("ended with exit code {} {}", code, said->how == "exited" ? "(main, or exit())" : "(sys.exit)");
  return fmt::format("ended with exit code {} and said nothing of an exception (os._exit, or exit() of a library)",
                     code);
}

RankExit SeenEnd::exit(bool is_here) const {
  if (!wait_status || !WIFSIGNALED(*wait_status)) return {.words = words()};
  const ProcessEnd killed = {.signal = WTERMSIG(*wait_status), .core = WCOREDUMP(*wait_status) != 0};
  return {words(), killed.signal, is_here ? core_words(killed, static_cast<pid_t>(pid)) : ""};
}

std::vector<SeenEnd> read_launcher_report(const std::string& folder) {
  const nlohmann::json report =
      protocol::read_json(protocol::read_file(protocol::launcher_report(folder)).value_or(""));
  std::vector<SeenEnd> failures;
  try {
    for (const nlohmann::json& each : report) {
      const int code = each.at("exitcode");  // of Python's subprocess: -9 for SIGKILL
      if (code < -kLastSignal || code > 255) return {};
      failures.push_back({.rank = each.at("rank"),
                          .pid = each.at("pid"),
                          .wait_status = code < 0 ? -code : W_EXITCODE(code, 0),
                          .time_s = each.at("time")});
    }
  } catch (const nlohmann::json::exception&) {  // none, or of a version of torch that reports otherwise
    return {};
  }
  // Those that it has ended are in its report, too: by SIGTERM, or by SIGKILL some time later.
  const auto is_first = [&](const SeenEnd& each) {
    return each.wait_status != SIGTERM && std::ranges::none_of(failures, [&](const SeenEnd& other) {
             return other.wait_status != SIGTERM && other.time_s < each.time_s;
           });
  };
  const bool is_known = std::ranges::any_of(failures, is_first);
  for (SeenEnd& each : failures) each.after_failure = is_known && !is_first(each);
  return failures;
}

void add_end(const SeenEnd& end, inspect::Remains& remains) {
  if (has_raised(end)) {
    inspect::RankError error{.rank = end.rank,
                             .type = end.said->type,
                             .message = end.said->message.substr(0, end.said->message.find('\n')),
                             .time_s = end.said->time,
                             .frames = {},
                             .origin = fmt::format("rank {}", end.rank)};
    if (auto frame = take_worker_error(end.said->message, error.message)) error.frames.push_back(std::move(*frame));
    for (const protocol::JobFrame& each : end.said->frames)
      error.frames.push_back({each.function, each.file, each.line});
    remains.errors.push_back(std::move(error));
    return;
  }
  const bool signalled = end.wait_status && WIFSIGNALED(*end.wait_status);
  const bool ended_by_launcher =
      end.after_failure && (!end.wait_status || (signalled && is_asked_to_end(WTERMSIG(*end.wait_status))));
  remains.doing.push_back(
      {.rank = end.rank,
       .kind = end.is_clean() || (end.said && signalled) ? FindingKind::finished : FindingKind::died,
       .words = end.words(),
       .ended = true,
       .at_fault = !end.is_clean() && !ended_by_launcher,
       .time_s = end.time_s,
       .calls = end.said ? end.said->calls : std::map<std::string, int64_t>()});
}

}  // namespace lockstep::shell
