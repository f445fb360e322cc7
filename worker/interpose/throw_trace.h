// Keeps where exceptions were thrown. The worker's __cxa_throw stands in front of libstdc++'s and notes the stack of
// each throw in a small ring, so that an exception that leaves a cell can be told with its line, even after it
// travelled between threads (std::async, autograd) and was thrown again. Throwing again what is not there (`throw;`
// outside of a handler, a null std::exception_ptr), which ends any other process, throws a std::logic_error here.
#pragma once
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "worker/process/stack.h"

namespace lockstep::worker {

/// Gives the stack at which `exception` was thrown first. Returns false where it has been forgotten.
bool thrown_at(const std::exception_ptr& exception, Stack& stack);
/// Gives the stack at which this thread threw it again (std::rethrow_exception), if that was its last rethrow.
bool rethrown_at(const std::exception_ptr& exception, Stack& stack);

/// A throw of the run thread.
struct PastThrow {
  int64_t cell = 0;  // that ran, as RankState has it
  int64_t time_ns = 0;  // CLOCK_MONOTONIC
  std::string type;
  Stack stack;
};
/// Returns the throws in `cell`, oldest first, as far as they have not been forgotten. From any thread.
std::vector<PastThrow> past_throws(int64_t cell);

}  // namespace lockstep::worker
