// What a thread is doing, from its native stack: it computes, is in a collective, sleeps, waits for a lock or for data. Its
// kind is that of a finding about it (protocol/verdict.h).
#pragma once
#include <string>
#include <vector>

#include "protocol/verdict.h"

namespace lockstep::inspect {

struct StackFrame {
  std::string function;  // demangled; empty where unknown, and for a cell's own level
  long cell = 0;  // 0: not code of a cell
  int line = 0;
  std::string object;  // "libc.so.6"; empty for code of cells
};

/// `frames`: innermost first. `asleep`: it sleeps in a function of the worker, which the stack does not show. `held`:
/// the kernel reports that it does not run.
FindingKind activity_of(const std::vector<StackFrame>& frames, bool asleep, bool held);

/// Whether a thread that is in no collective is in a function of c10d's store.
bool is_at_store(const std::vector<StackFrame>& frames);

/// "sleeps", "waits for a lock": for a sentence about a rank.
const char* activity_words(FindingKind activity);

/// Returns "evaluate() at cell 7, line 4": the innermost frame in a cell's text; empty without one.
std::string code_place(const std::vector<StackFrame>& frames);
/// Returns "cell 7, line 4": the same without the function.
std::string code_line(const std::vector<StackFrame>& frames);

}  // namespace lockstep::inspect
