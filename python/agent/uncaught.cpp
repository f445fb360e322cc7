#include "python/agent/uncaught.h"

#include <cxxabi.h>

#include <atomic>
#include <exception>
#include <typeinfo>

#include "python/agent/agent.h"
#include "python/agent/program_lines.h"
#include "worker/process/demangle.h"
#include "worker/process/stack.h"

namespace lockstep::agent {
namespace {

std::terminate_handler g_next = nullptr;
bool g_is_program = false;
std::function<void()>* g_hook_before = nullptr;  // never destroyed: threads may outlive the library's objects

std::string message_of_current() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {  // a type that has no message
    return "";
  }
}

void say_uncaught() {
  protocol::RankEnd end{.how = "threw"};
  end.type = worker::demangle(*abi::__cxa_current_exception_type());
  end.message = message_of_current();
  worker::Stack stack;  // nothing was unwound: no frame has a handler
  if (g_is_program) worker::capture_stack(stack);
  for (const ProgramLine& each : program_lines({stack.pc, stack.pc + stack.size}))
    if (!each.file.empty()) end.frames.push_back({.function = each.function, .file = each.file, .line = each.line});
  if (*g_hook_before) (*g_hook_before)();
  set_end(end);
}

[[noreturn]] void on_terminate() {
  static std::atomic<bool> entered = false;
  try {
    if (abi::__cxa_current_exception_type() && !entered.exchange(true)) say_uncaught();
  } catch (...) {  // the process ends of the first exception, not of this one
  }
  if (g_next) g_next();
  std::abort();
}

}  // namespace

void report_uncaught_exceptions(bool is_program, std::function<void()> before) {
  if (g_hook_before) return;
  g_is_program = is_program;
  g_hook_before = new std::function<void()>(std::move(before));
  g_next = std::set_terminate(on_terminate);
}

}  // namespace lockstep::agent
