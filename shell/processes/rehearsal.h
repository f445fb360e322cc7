// A session in which no cell runs: each rank is a small process, without LibTorch, that says it has loaded every object
// and run every step at once. Magics and cells take the way of any session, so the compiler is asked for what it would
// be asked for in a run. `lockstep build` records that.
#pragma once
#include <cstdint>
#include <optional>

#include "protocol/rank_set.h"

namespace lockstep::shell {

struct Launch;

/// A cell that ends early on some ranks: what later cells see depends on it.
struct EarlyEnd {
  int64_t number = 0;  // that people call the cell
  int64_t cell = 0;  // Compile::cell of the part that fails
  RankSet ranks;
  int64_t steps_done = 0;  // there
  bool operator==(const EarlyEnd&) const = default;
};

struct Rehearsal {
  std::optional<EarlyEnd> early_end;  // none: all cells run to their end
};

/// How a rank is started: this program itself. With --store: the process in the store's stead.
Launch rehearsal_launch(const Rehearsal& rehearsal);

/// Whether this process is one of them, and what it does then until the session ends it or is gone. Its exit code.
bool is_rehearsal_process(int argc, char** argv);
int run_rehearsal_process(int argc, char** argv);

}  // namespace lockstep::shell
