// ranks checks that the ranks agree on their setup. It finds ranks that are doubled or missing, a device that two ranks
// use, environment variables, settings, and versions of LibTorch and of the program that differ between ranks.
//
//   auto report = inspect::ranks();                                    // on every rank of a group
//   auto report = inspect::ranks(store, rank, world_size);             // without a group, if it can't be made
#pragma once
#include <cstdint>
#include <iosfwd>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "inspectors/exchange/report.h"
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

struct RanksOptions : InspectOptionsOf<RanksOptions> {};

struct RanksReport : Report {
  std::vector<RankIdentity> identities;  // of the processes that called, by rank
};

/// Prints a row for each rank, then the findings.
std::ostream& operator<<(std::ostream& out, const RanksReport& report);

/// Collective over the options' ranks, over the inspectors' own connections. Throws dist::ArgumentError for ranks that
/// do not exist.
RanksReport ranks(const RanksOptions& options = {});

/// Does the same for processes that share only a store: finds processes with the same rank, and ranks that do not call.
/// Every process calls it once, with a store that was not used for it before. Of the options it uses deadline and
/// publish.
RanksReport ranks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                  const RanksOptions& options = {});

}  // namespace lockstep::inspect
