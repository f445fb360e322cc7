// Gathers the evidence of NCCL and c10d about this rank, for the analysis of hangs: the Flight Recorder of
// ProcessGroupNCCL, errors of communicators, NCCL's RAS. Their calls can block in the driver, so a thread of its own
// makes them; without NCCL in the process there is none. inspectors/evidence reads the result.
#pragma once
#include <chrono>
#include <optional>

#include "protocol/questions.h"

namespace lockstep::worker {

/// Gathers the evidence anew, unless that was done within a second, and returns what there is after `patience` at the
/// latest, of an earlier call if need be. Returns nothing where no NCCL is loaded, and before anything was gathered.
/// `asks_ras`: one rank of a machine is enough. By the I/O thread.
std::optional<protocol::question::NcclEvidence> nccl_evidence(int rank, bool asks_ras,
                                                              std::chrono::milliseconds patience);

}  // namespace lockstep::worker
