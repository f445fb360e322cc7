// Finds where exceptions of cells were thrown. The worker sees each throw, since its __cxa_throw stands in front of the
// C++ library's. The process of a job is the user's, and nothing is put in front there. But the unwinder looks for a
// handler first, and touches the stack only when it has found one: the function that calls a step has a personality
// routine, which is asked then, and sees the stack of every exception that leaves the step.
#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string_view>

#include "worker/interpose/throw_trace.h"
#include "worker/process/dynamic_symbols.h"
#include "worker/process/host.h"

namespace {
thread_local lockstep::worker::Stack t_stack;  // of the exception that has left a step last; empty: none has

/// Whether the address is in the C++ library, the unwinder, or this library.
bool throws(uintptr_t address) {
  dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(address), &found) != 0) return false;
  const std::string_view name = found.dlfo_link_map->l_name ? found.dlfo_link_map->l_name : "";
  return found.dlfo_link_map == lockstep::worker::own_object() || name.find("/libgcc_s.so") != name.npos ||
         name.find("/libstdc++.so") != name.npos;
}
}  // namespace

extern "C" {

__attribute__((visibility("hidden"), used)) _Unwind_Reason_Code lockstep_step_personality(int, _Unwind_Action actions,
                                                                                          uint64_t, _Unwind_Exception*,
                                                                                          _Unwind_Context*) {
  if (actions & _UA_SEARCH_PHASE) lockstep::worker::capture_stack(t_stack);
  return _URC_CONTINUE_UNWIND;
}

__attribute__((visibility("hidden"))) void lockstep_call_step(void (*step)());
}

__asm__(R"(
  .text
  .hidden lockstep_call_step
  .globl lockstep_call_step
  .type lockstep_call_step, @function
lockstep_call_step:
  .cfi_startproc
  .cfi_personality 0x1b, lockstep_step_personality
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  callq *%rdi
  popq %rbp
  .cfi_def_cfa %rsp, 8
  retq
  .cfi_endproc
  .size lockstep_call_step, .-lockstep_call_step
)");

namespace lockstep::worker {

void call_step(void (*step)()) {
  t_stack.size = 0;
  lockstep_call_step(step);
}

bool thrown_at(const std::exception_ptr&, Stack& stack) {
  // The innermost frames are those of the throw itself.
  int first = 0;
  while (first < t_stack.size && throws(t_stack.pc[first])) ++first;
  stack.size = t_stack.size - first;
  std::copy(t_stack.pc + first, t_stack.pc + t_stack.size, stack.pc);
  return stack.size > 0;
}

bool rethrown_at(const std::exception_ptr&, Stack&) { return false; }

}  // namespace lockstep::worker
