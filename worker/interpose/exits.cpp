// Puts the worker's exit, _exit, _Exit and quick_exit in front of the C library's: a cell that calls one ends its rank,
// and the rank says so before it goes. In a child that a cell has forked they are the C library's.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "protocol/next_function.h"
#include "worker/interpose/crash.h"
#include "worker/interpose/exits.h"

namespace {
template <lockstep::FunctionName name, lockstep::FunctionName version = "">
[[noreturn]] void go_on(int code) {
  if (auto* const real = lockstep::next_function<name, void(int), version>()) real(code);
  ::syscall(SYS_exit_group, code);
  __builtin_unreachable();
}
}  // namespace

namespace lockstep::worker {
void exit_quietly(int code) {
  expect_exit();
  set_exit_code(code);
  go_on<"exit">(code);
}
}  // namespace lockstep::worker

extern "C" {

void exit(int code) {
  lockstep::worker::report_exit("exit", code);
  lockstep::worker::set_exit_code(code);
  go_on<"exit">(code);
}

void _exit(int code) {
  lockstep::worker::report_exit("_exit", code);
  go_on<"_exit">(code);
}

void _Exit(int code) noexcept {
  lockstep::worker::report_exit("_Exit", code);
  go_on<"_Exit">(code);
}

void quick_exit(int code) noexcept {
  lockstep::worker::report_exit("quick_exit", code);
  go_on<"quick_exit", "GLIBC_2.24">(code);
}
}
