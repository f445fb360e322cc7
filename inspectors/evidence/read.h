// Reads any file of evidence, by what is in it: a Flight Recorder's dump, an answer of NCCL's RAS, a sequence of
// asynchronous errors. `lockstep diagnose PATH` and inspect::hang are given such files.
#pragma once
#include <string>
#include <string_view>

#include "inspectors/evidence/evidence.h"
#include "inspectors/pickle/reading_limit.h"

namespace lockstep::inspect {

/// Throws UnreadableEvidence that says what the file is not.
Evidence read_evidence(std::string_view bytes, const std::string& origin);
/// Reads a file; the rank of a dump is the digits at the end of its name. Throws also if it can't be read, and
/// EvidenceTooLarge if it takes more than `limit`.
Evidence read_evidence_file(const std::string& path, ReadingLimit limit = ReadingLimit());

}  // namespace lockstep::inspect
