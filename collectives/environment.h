// How the ranks of a program outside of a session find each other: by the environment variables that torchrun and
// wrappers of Slurm's srun and of mpirun set, by a file, or by an address.
#pragma once
#include <optional>
#include <string>

#include "collectives/dist.h"

namespace lockstep::dist {

/// RendezvousInfo says which rank this process is, of how many, and in which store they meet.
struct RendezvousInfo {
  int rank = 0;
  int world_size = 1;
  Store store;
  std::optional<bool> loopback = true;  // all ranks are on this machine; empty: the ranks have to compare
};

/// Whether neither `options` nor the environment give a rank, a world size or a place to meet.
bool names_no_world(const InitOptions& options);

/// Finds the rendezvous of `options.init_method`; `rank` and `world_size` of the options go before the environment's.
/// With neither RANK nor WORLD_SIZE this rank is alone. Throws ArgumentError naming the variable and its value.
RendezvousInfo find_rendezvous(const InitOptions& options);

}  // namespace lockstep::dist
