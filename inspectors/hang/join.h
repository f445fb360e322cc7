// Joins what NCCL and c10d say about the ranks of a picture (inspectors/evidence) to what their own logs say. Each
// statement names its source. Where a source and a log differ, both are stated: neither is dropped. Pure.
#pragma once
#include <string>
#include <vector>

#include "inspectors/hang/picture.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

/// Returns what the evidence says about a collective that some rank of the picture has entered: "the Flight Recorder
/// has it as started on ranks 0-1 and as scheduled on rank 3", "NCCL's RAS counts 17 all_reduce on ranks 0-1 and 16 on
/// rank 2". Empty without evidence on it.
std::vector<std::string> evidence_on(const HangPicture& picture, const dist::CollectiveRecord& call);

/// Returns the same as the end of a message: "; NCCL's RAS …; the Flight Recorder …".
std::string evidence_words(const HangPicture& picture, const dist::CollectiveRecord& call);

/// Returns findings that rest on evidence alone: the first error of a communicator (a fault), and ranks that RAS
/// considers dead though their processes run (a note).
std::vector<Finding> evidence_findings(const HangPicture& picture);

}  // namespace lockstep::inspect
