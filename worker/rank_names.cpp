// Says who this rank is, as cells see it.
#include "worker/cell/cell.h"
#include "worker/process/configuration.h"

using lockstep::worker::configuration;

const int rank = configuration().rank;
const int world_size = configuration().world_size;
const int local_rank = configuration().local_rank;
const int node_rank = configuration().node_rank;
const int gpu_id = configuration().gpu_id;
const torch::Device device = configuration().device;
