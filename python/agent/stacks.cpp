#include "python/agent/stacks.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "collectives/log/socket_table.h"
#include "protocol/descriptor.h"
#include "protocol/environment.h"
#include "python/agent/program_lines.h"
#include "worker/process/demangle.h"
#include "worker/process/dynamic_symbols.h"
#include "worker/process/held_call.h"
#include "worker/process/stack.h"

namespace lockstep::agent {
namespace {

using nlohmann::json;

constexpr int kSignal = SIGURG;  // ignored by default, so that one that comes late does no harm
constexpr std::chrono::seconds kPatience{1};
constexpr off_t kLongestText = 4 << 20;

std::mutex g_mutex;  // one request at a time
struct sigaction g_action_before;
std::atomic<void (*)(int)> g_faulthandler = nullptr;
int g_text = -1;
std::atomic<int (*)()> g_holds_lock = nullptr;
std::atomic<bool> g_wanted = false;
std::atomic<bool> g_anyway = false, g_refused = false;
std::atomic<int> g_event = -1;
std::atomic<bool> g_taken = false;  // the handler has written g_stack
worker::Stack g_stack;
worker::HeldCall g_held;  // before the signal
std::atomic<bool> g_goes_on = false;  // the main thread is still in the call that the last signal has interrupted

void on_signal(int number, siginfo_t*, void* context) {
  const int error = errno;
  if (g_wanted.exchange(false)) {
    const worker::HeldCall held = g_held;
    const bool goes_on = worker::is_interrupted(held, context);
    worker::capture_interrupted_stack(g_stack, context);
    const auto faulthandler = g_faulthandler.load();
    const auto holds_lock = g_holds_lock.load();
    if (faulthandler && holds_lock) {
      if (g_anyway || !holds_lock())
        faulthandler(number);
      else
        g_refused = true;
    }
    g_goes_on = goes_on && !g_refused;  // the next request may want what was refused
    g_taken = true;
    set_event(g_event);
    if (g_goes_on) worker::go_on_with(held, context);
    g_goes_on = false;
  }
  errno = error;
}

/// Returns the fields of the main thread in /proc from the third on: its state first.
std::vector<std::string> main_thread_fields() {
  std::ifstream file("/proc/self/task/" + std::to_string(::getpid()) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(')');
  std::istringstream words(end == std::string::npos ? "" : text.substr(end + 1));
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

json frames_of(const worker::Stack& stack, bool with_lines) {
  std::map<const link_map*, std::vector<int>> by_library;
  for (int i = 0; i < stack.size; ++i) {
    dl_find_object found;
    if (_dl_find_object(reinterpret_cast<void*>(stack.pc[i]), &found) == 0)
      by_library[found.dlfo_link_map].push_back(i);
  }
  std::vector<json> frames(static_cast<size_t>(stack.size), {{"function", ""}, {"object", ""}});
  for (const auto& [map, members] : by_library) {
    std::vector<uintptr_t> addresses;
    for (const int i : members) addresses.push_back(stack.pc[i]);
    std::vector<std::string> names(addresses.size());
    worker::DynamicSymbols(map).name(addresses, names);
    const std::string path = map->l_name && *map->l_name ? map->l_name : protocol::own_program();
    for (size_t k = 0; k < members.size(); ++k)
      frames[static_cast<size_t>(members[k])] = {
          {"function", names[k].empty() ? "" : worker::demangle(names[k].c_str())},
          {"object", path.substr(path.rfind('/') + 1)}};
  }
  if (!with_lines) return frames;
  const std::vector<ProgramLine> lines = program_lines({stack.pc, stack.pc + stack.size});
  for (size_t i = 0; i < frames.size(); ++i) {
    if (frames[i]["function"] == "") frames[i]["function"] = lines[i].function;
    if (!lines[i].file.empty()) frames[i].update({{"file", lines[i].file}, {"line", lines[i].line}});
  }
  return frames;
}

namespace {

std::string faulthandler_text() {
  struct stat status = {};
  if (g_text < 0 || ::fstat(g_text, &status) != 0) return "";
  return read_at(g_text, static_cast<size_t>(std::min(status.st_size, kLongestText)));
}

/// Has the main thread write its stacks, and waits until it has.
void ask_main_thread(bool anyway) {
  if (g_text >= 0) {
    static_cast<void>(!::ftruncate(g_text, 0));
    ::lseek(g_text, 0, SEEK_SET);
  }
  static const int event = make_event().release();
  take_event(event);
  g_event = event;
  const struct sigaction action = worker::looking_action(on_signal);
  struct sigaction before = {};
  ::sigaction(kSignal, &action, &before);
  g_anyway = anyway;
  g_refused = false;
  g_taken = false;
  g_held = worker::held_call(::getpid());
  g_wanted = true;
  ::syscall(SYS_tgkill, ::getpid(), ::getpid(), kSignal);
  const bool answered = is_ready(event, POLLIN, kPatience);
  // No answer: the main thread blocks the signal, or sits in the kernel where none reaches it. A signal that comes later
  // goes to the program's own handler, if it has one, and is ignored else.
  if (!answered && !g_wanted.exchange(false)) is_ready(event, POLLIN, 10 * kPatience);  // it is at work: a busy machine
  ::sigaction(kSignal, &before, nullptr);
}

}  // namespace

void begin_borrowing() {
  const std::lock_guard lock(g_mutex);
  ::sigaction(kSignal, nullptr, &g_action_before);
}

void end_borrowing(int fd) {
  const std::lock_guard lock(g_mutex);
  struct sigaction now = {};
  ::sigaction(kSignal, &g_action_before, &now);
  const auto handler = (now.sa_flags & SA_SIGINFO) != 0 ? nullptr : now.sa_handler;
  if (handler == SIG_DFL || handler == SIG_IGN || handler == g_action_before.sa_handler) return;
  g_text = fd;
  g_faulthandler = handler;
}

void end_lending() {
  const std::lock_guard lock(g_mutex);
  g_faulthandler = nullptr;
}

void set_lock_check(int (*holds_lock)()) { g_holds_lock = holds_lock; }

bool main_thread_waits() {
  const std::vector<std::string> fields = main_thread_fields();
  return !fields.empty() && fields[0] != "R";  // R: it runs, or could
}

int64_t main_thread_cpu_ms() {
  const std::vector<std::string> fields = main_thread_fields();
  if (fields.size() < 13) return -1;
  return (std::atoll(fields[11].c_str()) + std::atoll(fields[12].c_str())) * 1000 / ::sysconf(_SC_CLK_TCK);
}

json take_stacks(bool anyway, bool lines) {
  const std::lock_guard lock(g_mutex);
  static const bool warm = [] {
    worker::warm_up_stacks();
    return true;
  }();
  static_cast<void>(warm);
  const bool held = main_thread_waits();
  if (!g_goes_on) ask_main_thread(anyway);  // else it has not moved since the last answer, which is right
  const bool answered = g_taken.load();
  return {{"native", answered ? frames_of(g_stack, lines) : json::array()},
          {"held", held},
          {"connecting", held ? dist::unanswered_connections() : std::vector<std::string>()},
          {"python", faulthandler_text()},
          {"holds_lock", answered && g_refused.load()}};
}

}  // namespace lockstep::agent
