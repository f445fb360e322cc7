// Reads dumps of c10d's Flight Recorder: the newest collectives of one rank, as ProcessGroupNCCL and ProcessGroupGloo
// record them. Format: torch/csrc/distributed/c10d/FlightRecorder.hpp of LibTorch 2.11 to 2.15 (version 2.10 of the
// format); all of major version 2 are read. A dump is JSON (c10d::dump_nccl_trace_json, dump_fr_trace_json), which has
// no stacks, or a pickle (the files that TORCH_NCCL_DUMP_ON_TIMEOUT writes, torch.distributed's _dump_nccl_trace).
//
// A dump says less than it seems to. `scheduled` is all that it says of a collective that has not ended, unless c10d
// records start events (TORCH_NCCL_ENABLE_TIMING=1, or desync debugging). Its times are those at which a thread of c10d
// noticed, which can be much later than what they are about. Of Gloo it has no starts and no times; what is retired
// counts as completed. c10d numbers the collectives of a group from 1, with those that it makes itself (the barrier of
// a new Gloo group), so that numbers of a log can differ.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "inspectors/evidence/evidence.h"
#include "inspectors/pickle/reading_limit.h"

namespace lockstep::inspect {

/// Larger dumps are refused: 2,000 records with long stacks need some 20 MB.
inline constexpr size_t kLargestDump = size_t{256} << 20;

/// `bytes` are JSON if they begin with a brace, else a pickle. `origin` is named in errors and verdicts. A dump does
/// not name its rank. Throws UnreadableEvidence, and EvidenceTooLarge for values that take more than `limit`.
Evidence read_flight_recorder(std::string_view bytes, const std::string& origin, std::optional<int> rank = std::nullopt,
                              ReadingLimit limit = ReadingLimit());

/// Reads a file. Without `rank`, the digits at the end of its name are the rank, as c10d writes them
/// ("comm_lib_trace_rank_3", "trace_3.json"). Throws UnreadableEvidence, also if the file can't be read.
Evidence read_flight_recorder_file(const std::string& path, std::optional<int> rank = std::nullopt);

}  // namespace lockstep::inspect
