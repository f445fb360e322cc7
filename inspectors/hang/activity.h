// What a thread is doing, from its native stack: it computes, is in a collective, sleeps, waits for a lock or for data.
#pragma once
#include <string>
#include <vector>

#include "protocol/verdict.h"

namespace lockstep::inspect {

enum class Activity {
  unknown,  // without a stack
  idle,  // no cell runs
  computing,
  collective,  // in a call of dist:: or c10d
  sleeping,
  lock,  // a mutex, a read-write lock, a semaphore
  condition,  // a condition variable, a future, a thread to join
  loading_data,  // in a data loader
  reading,  // a file, a pipe, a terminal
  polling,  // descriptors, a socket
  child,  // another process
  blocked,  // in the kernel, for an unknown reason
  device,  // for work that it has queued on its device
};

struct StackFrame {
  std::string function;  // demangled; empty where unknown, and for a cell's own level
  long cell = 0;  // 0: not code of a cell
  int line = 0;
  std::string object;  // "libc.so.6"; empty for code of cells
};

/// `frames`: innermost first. `asleep`: it sleeps in a function of the worker, which the stack does not show. `held`:
/// the kernel reports that it does not run.
Activity activity_of(const std::vector<StackFrame>& frames, bool asleep, bool held);

/// Whether a thread that is in no collective is in a function of c10d's store.
bool is_at_store(const std::vector<StackFrame>& frames);

/// "sleeps", "waits for a lock": for a sentence about a rank.
const char* activity_words(Activity activity);
/// "sleeping", "lock": for JSON.
const char* activity_name(Activity activity);
FindingKind kind_of_activity(Activity activity);

/// "evaluate() at cell 7, line 4": the innermost frame in a cell's text; empty without one.
std::string code_place(const std::vector<StackFrame>& frames);
/// "cell 7, line 4": the same without the function.
std::string code_line(const std::vector<StackFrame>& frames);

}  // namespace lockstep::inspect
