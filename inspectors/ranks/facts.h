// The facts that ranks exchange about their setup: numbers, process, host, device, environment, versions and code.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "inspectors/trace/cell_code.h"

namespace lockstep::inspect {

using Texts = std::map<std::string, std::string>;
/// Returns an empty text for an unknown name.
std::string text_of(const Texts& texts, const std::string& name);

struct RankIdentity {
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank, node_rank;  // if the launcher sets them
  int64_t pid = 0;
  std::string host;
  std::string machine;  // the same for processes that share a kernel and a pid namespace
  std::string backend;  // of the default group; empty without one
  std::string device;  // "cpu", "cuda:0"
  std::string device_id;  // its PCI address, which does not depend on CUDA_VISIBLE_DEVICES; empty for a CPU
  std::string cpu;  // the instruction set that LibTorch's kernels use
  int threads = 1;  // of an operator
  Texts environment;  // variables that affect computations or connections
  Texts versions;  // "LibTorch": "2.11.0", "libgomp.so.1": build id, ...
  Texts code;  // "program", "liblockstep", "cell 3": build id or hash
  std::map<std::string, CellCode> cells;  // only cells whose code differs between ranks; by name, as in `code`
  Texts settings;  // "deterministic algorithms": "on"
};

void to_json(nlohmann::json& json, const RankIdentity& identity);
void from_json(const nlohmann::json& json, RankIdentity& identity);

/// Returns the identity of the calling rank. Local.
RankIdentity own_identity();

/// Says how a variable that differs between ranks is reported.
enum class Weight {
  kIgnored,  // not: each rank has its own, as CUDA_VISIBLE_DEVICES
  kNote,
  kFault,  // with different values ranks compute differently, or can't work together
};
Weight weight_of_variable(const std::string& name);

}  // namespace lockstep::inspect
