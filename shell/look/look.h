// Looks at a running job from outside: what each rank does, by the kernel, by its Python and native stacks, and what
// torch and NCCL say of its collectives without the help of its program. Nothing in the job changes.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/hang/activity.h"
#include "inspectors/remains/remains.h"
#include "protocol/finding.h"
#include "shell/look/py_spy.h"
#include "shell/look/running_ranks.h"
#include "shell/look/thread_state.h"

namespace lockstep::shell {

struct LookOptions {
  std::string py_spy;  // --py-spy; empty: it is looked for
  std::chrono::milliseconds limit{10'000};  // of each question
  std::chrono::milliseconds apart{500};  // between the two looks at a rank
};

/// Holds what was seen of a rank.
struct LookedRank {
  int rank = 0;
  int64_t pid = 0;
  ThreadState state;  // of its main thread
  std::vector<PythonThread> threads;  // empty: without py-spy
  std::vector<inspect::StackFrame> native;  // of the main thread, innermost first
  std::optional<double> still_s;  // for how long the main thread has not run, at least; nothing: unknown
  bool has_moved = false;  // between the two looks

  const PythonThread* main_thread() const;
};

struct Look {
  std::vector<LookedRank> ranks;  // those that have answered
  inspect::Remains remains;  // for judge()
  std::string py_spy;  // its version; empty: there is none
  std::vector<std::string> problems;  // what could not be seen, and how it can, a sentence each
};

Look look_at(const RunningJob& job, const LookOptions& options);

/// The verdict. A wait is a fault if it is proven never to end (a rank that others wait for has ended, or is stopped),
/// or if the ranks that wait have waited for `hang_after_s` seconds: by their main threads, which have not run, or by
/// their recorders, in which the collective is that old. A note else, which says why.
std::vector<Finding> judge_look(const Look& look, double hang_after_s);

}  // namespace lockstep::shell
