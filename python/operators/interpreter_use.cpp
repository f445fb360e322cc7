#include "python/operators/interpreter_use.h"

#include <condition_variable>
#include <mutex>

namespace lockstep::python {
namespace {

struct Uses {
  std::mutex mutex;
  std::condition_variable changed;
  int number = 0;
  bool are_over = false;

  bool begin() {
    const std::lock_guard lock(mutex);
    if (!are_over) ++number;
    return !are_over;
  }
  void end() {
    const std::lock_guard lock(mutex);
    --number;
    changed.notify_all();
  }
};

// Never destroyed: the agent's threads may outlive the library's objects.
Uses& uses() {
  static auto* one = new Uses;
  return *one;
}

}  // namespace

InterpreterUse::InterpreterUse(bool wanted) : may_(wanted && uses().begin()) {}

InterpreterUse::~InterpreterUse() {
  if (may_) uses().end();
}

void finish_interpreter_uses() {
  Uses& all = uses();
  std::unique_lock lock(all.mutex);
  all.are_over = true;
  all.changed.wait(lock, [&] { return all.number == 0; });
}

}  // namespace lockstep::python
