// What a thread is at, read off its native stack: it computes, sits in a collective, sleeps, waits for a lock, for
// data.
#pragma once
#include <string>
#include <vector>

namespace lockstep::inspect {

enum class Activity {
  unknown,  // the stack is not known
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
  blocked,  // held by the kernel, nobody knows by what
};

struct StackFrame {
  std::string function;  // demangled; empty where unknown, and for a cell's own level
  long cell = 0;  // 0: not code of a cell
  int line = 0;
  std::string object;  // "libc.so.6"; empty for code of cells
};

/// `frames`: innermost first. `asleep`: it sleeps in a function of the worker's own, which the stack does not show.
/// `held`: the kernel says that it does not run.
Activity activity_of(const std::vector<StackFrame>& frames, bool asleep, bool held);

/// "sleeps", "waits for a lock"; the verb that a sentence about a rank needs.
const char* activity_words(Activity activity);
/// "sleeping", "lock": for data.
const char* activity_name(Activity activity);

/// "evaluate() at cell 7, line 4" of the innermost frame in a cell's text; empty where there is none.
std::string code_place(const std::vector<StackFrame>& frames);
/// "cell 7, line 4" of the same.
std::string code_line(const std::vector<StackFrame>& frames);

}  // namespace lockstep::inspect
