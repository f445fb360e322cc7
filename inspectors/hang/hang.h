// hang finds which ranks wait for whom, by the collective logs of all ranks, read while the ranks are stuck or after
// they died; the ranks take no part. It is for programs without a session: a session does this itself, and with more
// information (native stacks, lines, ranks that have left a cell).
#pragma once
#include <string>
#include <vector>

#include "protocol/finding.h"

namespace lockstep::inspect {

/// `logs` are the files of all ranks (dist::InitOptions::log_path), of one machine, in any order. Local, from any
/// process of the same user. Only waits of more than `seconds` count. A wait that can't end is a fault
/// (docs/inspectors.md lists the verdicts); a straggler is a note; `ok` if no hang is proven. A process that no longer
/// exists counts as dead. `evidence` are files of what NCCL and c10d say, in any order: dumps of Flight Recorders (the
/// digits at the end of the name are the rank), answers of NCCL's RAS, sequences of asynchronous errors. Findings name
/// the source of what they take from there, and where it differs from the logs they state both. Throws dist::Error for
/// a file that is no log, UnreadableEvidence for one that is no evidence.
std::vector<Finding> hang(const std::vector<std::string>& logs, double seconds = 0.1,
                          const std::vector<std::string>& evidence = {});

}  // namespace lockstep::inspect
