// How launchers number the ranks of a job: the variables that each of them sets.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>

namespace lockstep::protocol {

struct Launcher {
  const char* name;  // empty: torchrun, or whatever else sets RANK
  const char *rank, *world_size, *local_rank;
  const char* local_world_size;  // empty: it sets none
};
// The first whose variables a process has counts: torchrun is started by the others, too.
inline constexpr std::array kLaunchers = {
    Launcher{"", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},  // torchrun, accelerate, deepspeed
    Launcher{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE"},
    Launcher{"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""},
    Launcher{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};

struct LaunchedRank {
  const Launcher* launcher = nullptr;
  int rank = 0, world_size = 1;
  std::optional<int> local_rank;
  int local_world_size = 0;  // 0: the launcher does not say
};

/// Returns the numbers that this launcher has given a process, as launched_rank() does.
std::optional<LaunchedRank> rank_by(const Launcher& launcher,
                                    const std::function<std::string(const char* name)>& variable);

/// Returns the numbers that a process has by its variables; none if it has none that make sense. `variable` returns the
/// value of one, empty if it is not set.
std::optional<LaunchedRank> launched_rank(const std::function<std::string(const char* name)>& variable);

}  // namespace lockstep::protocol
