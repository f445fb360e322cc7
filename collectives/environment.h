// How a program that is no session finds its ranks: the variables that torchrun, Slurm's srun and mpirun wrappers set, a file, or
// an address.
#pragma once
#include <optional>
#include <string>

#include "collectives/dist.h"

namespace lockstep::dist {

struct Meeting {
  int rank = 0;
  int world_size = 1;
  Store store;
  std::optional<bool> loopback = true;  // all ranks are on this machine; nothing: only the ranks together can tell
};

/// For `options.init_method`, with `rank` and `world_size` of the options before those of the environment. With neither RANK nor
/// WORLD_SIZE: alone. Throws ArgumentError naming the variable and its value.
Meeting find_meeting(const InitOptions& options);

}  // namespace lockstep::dist
