#include "worker/interpose/throw_trace.h"

#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <typeinfo>

#include "protocol/next_function.h"
#include "worker/process/demangle.h"
#include "worker/process/run_state.h"

namespace lockstep::worker {
namespace {

struct Thrown {
  std::atomic<const void*> object{nullptr};
  const std::type_info* type = nullptr;
  int64_t cell = 0;  // 0: not thrown by the run thread
  int64_t time_ns = 0;
  Stack stack;
};

constexpr size_t kRemembered = 32;
std::array<Thrown, kRemembered> g_thrown;
std::atomic<size_t> g_next{0};
thread_local Thrown t_rethrown;

void remember(Thrown& slot, const void* object, const std::type_info* type) {
  slot.object.store(nullptr, std::memory_order_release);
  capture_stack(slot.stack, 2);
  slot.type = type;
  slot.cell = ::gettid() == ::getpid() ? run_state().cell() : 0;
  slot.time_ns = RunState::now_ns();
  slot.object.store(object, std::memory_order_release);
}

/// Returns what libstdc++ keeps in an exception_ptr: the address of the exception object, which __cxa_throw was given.
const void* object_of(const std::exception_ptr& exception) {
  static_assert(sizeof(std::exception_ptr) == sizeof(void*));
  const void* object;
  std::memcpy(&object, static_cast<const void*>(&exception), sizeof object);
  return object;
}

}  // namespace

bool thrown_at(const std::exception_ptr& exception, Stack& stack) {
  const void* object = object_of(exception);
  const size_t next = g_next.load();
  for (size_t i = 1; i <= kRemembered; ++i) {
    const auto& slot = g_thrown[(next - i) % kRemembered];
    if (slot.object.load(std::memory_order_acquire) != object) continue;
    stack = slot.stack;
    return true;
  }
  return false;
}

bool rethrown_at(const std::exception_ptr& exception, Stack& stack) {
  if (t_rethrown.object.load() != object_of(exception)) return false;
  stack = t_rethrown.stack;
  return true;
}

void remember_throw(const void* object, const std::type_info* type) {
  remember(g_thrown[g_next.fetch_add(1) % kRemembered], object, type);
}
void remember_rethrow(const void* object) { remember(t_rethrown, object, nullptr); }

std::vector<PastThrow> past_throws(int64_t cell) {
  std::vector<PastThrow> result;
  for (const Thrown& slot : g_thrown) {
    const void* object = slot.object.load(std::memory_order_acquire);
    if (!object || slot.cell != cell || cell == 0 || !slot.type) continue;
    PastThrow copy{.cell = slot.cell, .time_ns = slot.time_ns, .type = demangle(*slot.type), .stack = slot.stack};
    // Another throw may have taken the place meanwhile.
    if (slot.object.load(std::memory_order_acquire) == object && slot.time_ns == copy.time_ns)
      result.push_back(std::move(copy));
  }
  std::ranges::sort(result, {}, &PastThrow::time_ns);
  return result;
}

}  // namespace lockstep::worker

using lockstep::next_function;

namespace {

using Throw = void(void*, std::type_info*, void (*)(void*));
using Rethrow = void(std::exception_ptr*);  // a class that is not trivial to copy is passed by its address
using ThrowAgain = void();

/// Whether this thread is in a handler.
bool handles_exception() {
  // The first field of __cxa_eh_globals (Itanium C++ ABI, exception handling, 2.2.2) has the exceptions that are being
  // handled.
  const void* caught;
  std::memcpy(&caught, static_cast<const void*>(abi::__cxa_get_globals()), sizeof caught);
  return caught != nullptr;
}

}  // namespace

extern "C" {

__attribute__((noreturn)) void __cxa_throw(void* object, std::type_info* type, void (*destroy)(void*)) {
  auto* const real = next_function<"__cxa_throw", Throw>();
  lockstep::worker::remember_throw(object, type);
  real(object, type, destroy);
  __builtin_unreachable();
}

__attribute__((noreturn)) void lockstep_rethrow_exception(std::exception_ptr* exception) __asm__(
    "_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE");

void lockstep_rethrow_exception(std::exception_ptr* exception) {
  auto* const real = next_function<"_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE", Rethrow>();
  if (!*exception)
    throw std::logic_error("std::rethrow_exception was given a null std::exception_ptr: nothing to throw");
  lockstep::worker::remember_rethrow(*reinterpret_cast<void**>(exception));
  real(exception);
  __builtin_unreachable();
}

/// This is `throw;`. Without an exception to throw again libstdc++ would end the process.
__attribute__((noreturn)) void __cxa_rethrow() {
  auto* const real = next_function<"__cxa_rethrow", ThrowAgain>();
  if (!handles_exception())
    throw std::logic_error("`throw;` outside of a handler: there is no exception to throw again");
  real();
  __builtin_unreachable();
}
}
