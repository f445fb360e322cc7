// Machines of a job that mpirun or mpiexec has started, from its command line and from the variables that it sets.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "shell/hosts/host.h"

namespace lockstep::shell {

/// The machines that the command line of mpirun names (-H, --hostfile), without this one, by ssh, which mpirun uses as well.
std::vector<Host> mpi_hosts(const std::vector<std::string>& launcher);

/// The same of the mpiexec of MPICH (Hydra), as /proc shows its words: -hosts, -f as well. It replaces the commas of the
/// list, so that each host is a word; the first that is no host name, or is a program of PATH, ends the list.
std::vector<Host> hydra_hosts(std::vector<std::string> launcher);

/// Says where this process is among those that mpirun or mpiexec has started.
struct MpiPlace {
  int task = 0;  // its number
  bool has_others_here = false;  // as SlurmPlace
};
/// Returns nothing where they have not started it (srun's tasks are no such), and in a job of one machine.
std::optional<MpiPlace> mpi_place();
/// Returns the machines of this process's mpirun or mpiexec without this one, by ssh: from the variables of Open MPI's
/// daemons, or from the command line of mpirun, where that has started this process itself. Empty where neither tells.
std::vector<Host> hosts_of_mpi_place();

}  // namespace lockstep::shell
