#include "shell/look/thread_state.h"

#include <fmt/format.h>
#include <sched.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "protocol/files.h"

namespace lockstep::shell {
namespace {

std::string thread_file(int64_t pid, int64_t thread, const char* name) {
  return fmt::format("/proc/{}/task/{}/{}", pid, thread, name);
}

/// Returns the number behind `name` and a colon, which begins a line.
std::optional<double> number_after(const std::string& text, const std::string& name) {
  const size_t at = ("\n" + text).find("\n" + name);
  if (at == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(text.find(':', at) + 1));
  double number = 0;
  return rest >> number ? std::optional(number) : std::nullopt;
}

/// Returns when it ran last, in milliseconds of its processor's clock.
std::optional<double> last_run(const std::string& file) {
  const auto text = protocol::read_file(file);
  return text ? number_after(*text, "se.exec_start") : std::nullopt;
}

}  // namespace

std::optional<ThreadState> thread_state(int64_t pid, int64_t thread) {
  const auto stat = protocol::read_file(thread_file(pid, thread, "stat"));
  const size_t end_of_name = stat ? stat->rfind(')') : std::string::npos;
  if (end_of_name == std::string::npos) return std::nullopt;
  std::istringstream words(stat->substr(end_of_name + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
  constexpr size_t kState = 0, kProcessor = 39 - 3;  // fields 3 and 39 of proc(5)
  if (fields.size() <= kProcessor) return std::nullopt;
  ThreadState found{.state = fields[kState].front(), .processor = std::stoi(fields[kProcessor])};
  if (const auto status = protocol::read_file(thread_file(pid, thread, "status")))
    for (const char* name : {"voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"})
      found.switches += static_cast<uint64_t>(number_after(*status, name).value_or(0));
  if (std::ifstream times(thread_file(pid, thread, "schedstat")); times) times >> found.run_ns;
  return found;
}

std::optional<double> seconds_since_it_ran(int64_t pid, int64_t thread, int processor) {
  const auto then = last_run(thread_file(pid, thread, "sched"));
  cpu_set_t before, one;
  CPU_ZERO(&one);
  if (!then || processor < 0 || processor >= CPU_SETSIZE || ::sched_getaffinity(0, sizeof before, &before) != 0)
    return std::nullopt;
  CPU_SET(static_cast<size_t>(processor), &one);
  if (::sched_setaffinity(0, sizeof one, &one) != 0) return std::nullopt;
  const auto now = last_run("/proc/thread-self/sched");
  ::sched_setaffinity(0, sizeof before, &before);
  if (!now || *now < *then) return std::nullopt;
  return (*now - *then) / 1000;
}

std::string kernel_function(int64_t pid, int64_t thread) {
  const std::string name = protocol::read_file(thread_file(pid, thread, "wchan")).value_or("");
  return name == "0" ? "" : name;
}

}  // namespace lockstep::shell
