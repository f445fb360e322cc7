// What one rank tells the others of itself: numbers, process, host, device, the environment and the code that it runs
// with.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "inspectors/trace/cell_code.h"

namespace lockstep::inspect {

using Texts = std::map<std::string, std::string>;
/// Empty where there is none of that name.
std::string text_of(const Texts& texts, const std::string& name);

struct RankIdentity {
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank, node_rank;  // where the launcher said so
  int64_t pid = 0;
  std::string host;
  std::string machine;  // the same for processes that share a kernel and a pid namespace
  std::string backend;  // of the default group; empty before there is one
  std::string device;  // "cpu", "cuda:0"
  std::string device_id;  // what the device is whatever it is called (its PCI address); empty for a CPU
  std::string cpu;  // the instruction set that LibTorch's kernels use
  int threads = 1;  // of an operator
  Texts environment;  // variables that change what a rank computes or how it connects
  Texts versions;  // "LibTorch": "2.11.0", "libgomp.so.1": build id, ...
  Texts code;  // "program", "liblockstep", "cell 3": build id or hash
  std::map<std::string, CellCode> cells;  // of those cells whose code is not the same everywhere: by name, as in `code`
  Texts settings;  // "deterministic algorithms": "on"
};

void to_json(nlohmann::json& json, const RankIdentity& identity);
void from_json(const nlohmann::json& json, RankIdentity& identity);

/// Of the calling rank. Local.
RankIdentity own_identity();

/// How much it matters that a variable is not the same everywhere.
enum class Weight {
  kIgnored,  // each rank has its own: CUDA_VISIBLE_DEVICES
  kNote,
  kFault,  // ranks that differ in it compute differently, or can't work together
};
Weight weight_of_variable(const std::string& name);

}  // namespace lockstep::inspect
