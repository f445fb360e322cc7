#include "worker/cell/rank_names.h"

#include <c10/core/Device.h>

// worker/cell/cell.h declares these, and only this file may write them.
int rank_of_cells __asm__("lockstep_cell_rank") = 0;
int world_size_of_cells __asm__("lockstep_cell_world_size") = 1;
int local_rank_of_cells __asm__("lockstep_cell_local_rank") = 0;
int node_rank_of_cells __asm__("lockstep_cell_node_rank") = 0;
int gpu_id_of_cells __asm__("lockstep_cell_gpu_id") = -1;
c10::Device device_of_cells __asm__("lockstep_cell_device"){c10::kCPU};

namespace lockstep::worker {

void name_rank(const Configuration& configuration) {
  rank_of_cells = configuration.rank;
  world_size_of_cells = configuration.world_size;
  local_rank_of_cells = configuration.local_rank;
  node_rank_of_cells = configuration.node_rank;
  gpu_id_of_cells = configuration.gpu_id;
  device_of_cells = c10::Device(configuration.device);
}

void set_rank_number(int rank, int world_size) {
  rank_of_cells = rank;
  world_size_of_cells = world_size;
}

}  // namespace lockstep::worker
