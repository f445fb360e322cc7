// The configuration of a worker, read from its environment once. Nothing here throws: what is wrong is kept as
// sentences that name the variable, so that the worker can say it to the hub before it ends.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "protocol/output_channel.h"

namespace lockstep::worker {

struct Configuration {
  int rank = 0;  // LOCKSTEP_RANK
  int world_size = 1;  // LOCKSTEP_WORLD_SIZE
  int local_rank = 0;  // LOCKSTEP_LOCAL_RANK; default: rank
  int local_world_size = 1;  // LOCKSTEP_LOCAL_WORLD_SIZE; default: world_size
  int node_rank = 0;  // LOCKSTEP_NODE_RANK
  std::string session_dir;  // LOCKSTEP_SESSION_DIR
  std::string hub;  // LOCKSTEP_HUB: a ZeroMQ endpoint
  std::string identity;  // LOCKSTEP_IDENTITY: by which the hub knows this connection
  std::string store;  // LOCKSTEP_STORE: "127.0.0.1:port"
  // LOCKSTEP_GENERATION: of the regroup at which it takes a lost rank's place; 0: it takes none.
  int64_t generation = 0;
  std::string replay;  // LOCKSTEP_REPLAY: the recording whose rank this process is, without the others; empty: none
  std::string store_key;  // LOCKSTEP_STORE_KEY: before every key of this session, so that nobody else can name one
  std::string backend = "gloo";  // LOCKSTEP_BACKEND: auto, gloo, shared_memory, nccl, cpu:gloo,cuda:nccl
  std::string device = "cpu";  // LOCKSTEP_DEVICE: cpu, cuda:N
  // LOCKSTEP_GPU_ID, which counts as the user does among the GPUs that the session sees; default: N of cuda:N. The two
  // differ where each rank sees one GPU only. -1 on the CPU.
  int gpu_id = -1;
  int threads = 1;  // LOCKSTEP_THREADS, intra-op; default: cores of this process / local_world_size
  bool check_collectives = true;  // LOCKSTEP_CHECK_COLLECTIVES: 1, 0
  int lifeline_fd = -1;  // LOCKSTEP_LIFELINE_FD
  std::optional<protocol::OutputChannels> output;  // LOCKSTEP_OUTPUT_FDS; nothing: the worker makes its own
  std::map<std::string, std::string> arguments;  // LOCKSTEP_ARGUMENTS: a JSON object of strings
  std::vector<std::string> problems;  // empty when all is well

  std::string rank_dir() const { return session_dir + "/rank-" + std::to_string(rank); }
};

/// Gives LD_LIBRARY_PATH the value that the user's environment has (LOCKSTEP_USER_LIBRARY_PATH): the shell adds the
/// folder of LibTorch for the start of this process, and cells and their programs do not see it. Called before there
/// are threads.
void restore_library_path();

/// Reads `environment` (a lookup as std::getenv).
Configuration read_configuration(const char* (*lookup)(const char*));

/// Returns that of this process, read at the first call.
const Configuration& configuration();

}  // namespace lockstep::worker
