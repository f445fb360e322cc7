#include "python/cells/rank.h"

#include <c10/core/Device.h>

#include "worker/process/configuration.h"

// worker/cell/cell.h declares these, and only this file may write them.
int rank_of_cells __asm__("lockstep_cell_rank") = 0;
int world_size_of_cells __asm__("lockstep_cell_world_size") = 1;
int local_rank_of_cells __asm__("lockstep_cell_local_rank") = 0;
int node_rank_of_cells __asm__("lockstep_cell_node_rank") = 0;
int gpu_id_of_cells __asm__("lockstep_cell_gpu_id") = -1;
c10::Device device_of_cells __asm__("lockstep_cell_device"){c10::kCPU};

namespace lockstep::worker {
namespace {
Configuration& mutable_configuration() {
  static auto* const all = new Configuration;
  return *all;
}
}  // namespace

const Configuration& configuration() { return mutable_configuration(); }

}  // namespace lockstep::worker

namespace lockstep::python {

void set_rank(const nlohmann::json& facts) {
  worker::Configuration& all = worker::mutable_configuration();
  rank_of_cells = all.rank = facts.at("rank");
  world_size_of_cells = all.world_size = facts.at("world_size");
  local_rank_of_cells = all.local_rank = facts.at("local_rank");
  node_rank_of_cells = all.node_rank = facts.at("node_rank");
  gpu_id_of_cells = all.gpu_id = facts.at("gpu_id");
  all.device = facts.at("device");
  device_of_cells = c10::Device(all.device);
}

}  // namespace lockstep::python
