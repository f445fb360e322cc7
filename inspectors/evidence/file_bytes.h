// Reads files of evidence as bytes.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "inspectors/pickle/reading_limit.h"

namespace lockstep::inspect {

/// Returns all bytes of a regular file, taken from `limit`. Throws UnreadableEvidence if there are more than `most`, or
/// it can't be read, and EvidenceTooLarge for more than `limit`.
std::string file_bytes(const std::string& path, size_t most, ReadingLimit& limit);

/// Returns the digits at the end of a file's name: 3 for "comm_lib_trace_rank_3" (c10d) and "trace_3.json".
std::optional<int> rank_in_file_name(const std::string& path);

}  // namespace lockstep::inspect
