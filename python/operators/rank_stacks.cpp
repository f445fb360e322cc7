#include "python/operators/agent_handlers.h"

#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "python/agent/stacks.h"
#include "python/operators/interpreter_use.h"

namespace lockstep::python {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

// Python gives its lock away every 5 ms (sys.getswitchinterval()) where another thread wants it. A thread that has
// computed or waited for this long meanwhile is within one call.
constexpr int64_t kLongCallMs = 100;
constexpr auto kLongWait = 200ms;
constexpr auto kPatience = 3s;  // on a machine that is too busy to know
constexpr auto kHeldLock = 1s;  // a thread that does not give the lock away for so long is within one call

/// These are of Python's C API, which any program that has this library loaded also has.
struct PythonLock {
  int (*check)() = find<int()>("PyGILState_Check");
  int (*ensure)() = find<int()>("PyGILState_Ensure");
  void (*release)(int) = find<void(int)>("PyGILState_Release");
  explicit operator bool() const { return check && ensure && release; }

 private:
  template <typename Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  }
};

const PythonLock& python_lock() {
  static const PythonLock lock;
  return lock;
}

/// Whether the main thread waits for the interpreter's lock: the only condition for which the interpreter itself waits;
/// locks of programs are semaphores. Internal functions of the C library have no names.
bool waits_for_interpreter(const json& answer) {
  const json native = answer.value("native", json::array());
  bool in_condition = false;
  for (const json& frame : native) {
    const std::string function = frame.value("function", ""), object = frame.value("object", "");
    if (object.starts_with("python") || object.starts_with("libpython")) return in_condition;
    if (!object.starts_with("libc.so") || !(function.empty() || function.starts_with("pthread_cond_"))) return false;
    in_condition = in_condition || !function.empty();
  }
  return false;
}

/// Has a thread that holds the lock take the stacks.
class TakenWithLock {
 public:
  static std::shared_ptr<TakenWithLock> begin() {
    auto result = std::make_shared<TakenWithLock>();
    std::thread([result] {
      const InterpreterUse use;
      json answer;
      if (use) {
        const int state = python_lock().ensure();
        answer = agent::take_stacks();
        python_lock().release(state);
      }
      const std::lock_guard lock(result->mutex_);
      result->answer_ = std::move(answer);
      result->changed_.notify_all();
    }).detach();
    return result;
  }

  /// Returns null where the interpreter is about to end, and nothing until the lock was there.
  std::optional<json> wait(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return answer_.has_value(); });
    return answer_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<json> answer_;
};

}  // namespace

json stacks(const json&) {
  static std::mutex mutex;  // one request at a time, and one thread that waits for the lock
  static std::shared_ptr<TakenWithLock> taken;
  const std::lock_guard only(mutex);
  if (python_lock()) agent::set_lock_check(python_lock().check);
  json answer = agent::take_stacks();
  const bool at_lock = waits_for_interpreter(answer);
  if (!answer.value("holds_lock", false) && !at_lock) return answer;
  if (!taken || taken->wait(0ms)) taken = TakenWithLock::begin();
  const auto begin = std::chrono::steady_clock::now();
  auto waits_since = begin;
  const int64_t cpu_before = agent::main_thread_cpu_ms();
  for (;;) {
    if (std::optional<json> found = taken->wait(10ms)) {
      if (!found->is_object()) return answer;
      if (waits_for_interpreter(*found)) (*found)["at_lock"] = "free";
      return *found;
    }
    const auto now = std::chrono::steady_clock::now();
    if (at_lock) {
      if (now - begin < kHeldLock) continue;
      json found = agent::take_stacks(/*anyway=*/true);
      if (waits_for_interpreter(found)) found["at_lock"] = "held";
      return found;
    }
    if (!agent::main_thread_waits()) waits_since = now;
    const bool is_long_call =
        now - waits_since >= kLongWait || (cpu_before >= 0 && agent::main_thread_cpu_ms() - cpu_before >= kLongCallMs);
    if (is_long_call) return agent::take_stacks(/*anyway=*/true);
    if (now - begin >= kPatience) return answer;
  }
}

}  // namespace lockstep::python
