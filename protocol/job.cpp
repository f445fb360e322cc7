#include "protocol/job.h"

namespace lockstep::protocol {

std::string launcher_report(const std::string& folder) { return folder + "/launcher.json"; }

std::string rank_file(const std::string& folder, int rank) {
  return folder + "/rank-" + std::to_string(rank) + ".json";
}

std::string rank_socket(const std::string& folder, int rank) {
  return folder + "/rank-" + std::to_string(rank) + ".sock";
}

std::string rank_log(const std::string& folder, int rank) { return folder + "/rank-" + std::to_string(rank) + ".log"; }

std::string rank_trace(const std::string& folder, int rank, bool nccl) {
  return folder + "/rank-" + std::to_string(rank) + (nccl ? ".nccl-trace" : ".trace");
}

}  // namespace lockstep::protocol
