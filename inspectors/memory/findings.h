// Makes the findings about the memory of all ranks' devices. Pure: facts in, findings out. All of them are notes: a
// rank may hold more than others for a good reason.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/memory/facts.h"

namespace lockstep::inspect {

// A rank holds more than the others when it is this much above the rank in the middle (of two, the lower one).
inline constexpr double kMoreThanOthers = 1.1;
inline constexpr int64_t kMuchMore = 64 << 20;
// Split blocks are reported from this size and this share of what LibTorch has reserved.
inline constexpr int64_t kMuchSplit = 256 << 20;
inline constexpr double kLargeShareSplit = 0.2;

/// Makes notes: `outlier` of kind `device` (a rank's tensors take more than those of the others, and which of them),
/// `unused` of kind `storage` (memory that split blocks keep from other uses), `outlier` of kind `environment` (a
/// program that is no rank uses a rank's GPU). `ranks` are by rank index.
std::vector<Finding> memory_findings(const About& about, const std::vector<RankMemory>& ranks);

/// Returns the programs on the rank's GPU that are no rank. Unset where that can't be said: the driver's list does not
/// have the rank's own process, as in a container with process numbers of its own.
std::optional<std::vector<gpus::GpuProcess>> other_programs(const RankMemory& rank,
                                                            const std::vector<RankMemory>& ranks);
/// Returns the bytes of those, as far as the driver says; unset where there is none, or it can't be said.
std::optional<int64_t> memory_of_other_programs(const RankMemory& rank, const std::vector<RankMemory>& ranks);

/// Returns "2.10 GB".
std::string memory_text(int64_t bytes);
/// Returns "2.10 GB by pid 4711 (python)".
std::string program_text(const gpus::GpuProcess& process);

}  // namespace lockstep::inspect
