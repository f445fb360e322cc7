// A session in which no cell runs: each rank is a small process without LibTorch, which reports every object as loaded
// and every step as done. Magics and cells take the usual way, so the compiler gets the requests of a real run.
// `lockstep build` records them.
#pragma once
#include <cstdint>
#include <optional>

#include "protocol/rank_set.h"

namespace lockstep::shell {

struct Launch;

/// Is a cell that ends early on some ranks: what later cells see depends on it.
struct EarlyEnd {
  int64_t number = 0;  // of the cell, as it is shown
  int64_t cell = 0;  // Compile::cell of the part that ends early
  RankSet ranks;
  int64_t steps_done = 0;  // of that part
  bool operator==(const EarlyEnd&) const = default;
};

struct Rehearsal {
  std::optional<EarlyEnd> early_end;  // none: all cells run to their end
};

/// Says how a rank is started: by this program itself. With --store, it takes the place of the store process.
Launch rehearsal_launch(const Rehearsal& rehearsal);

/// Whether this process is a rank of a rehearsal. run_rehearsal_process() serves until the session ends or is gone, and
/// returns the exit code.
bool is_rehearsal_process(int argc, char** argv);
int run_rehearsal_process(int argc, char** argv);

}  // namespace lockstep::shell
