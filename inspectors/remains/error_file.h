// Reads the error files of torchelastic: error.json, which torchrun's workers write when a function with the decorator
// `record` raises (torch/distributed/elastic/multiprocessing/errors/error_handler.py of PyTorch 2.11 to 2.15):
// {"message": {"message": "ValueError: …", "extraInfo": {"py_callstack": "Traceback …", "timestamp": "1700000000"}}},
// or with a text as "message".
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "inspectors/pickle/reading_limit.h"
#include "inspectors/remains/remains.h"

namespace lockstep::inspect {

/// Whether JSON that begins like this is such a file.
bool is_error_file(std::string_view head);
/// Throws UnreadableEvidence.
RankError read_error_file(std::string_view bytes, const std::string& origin, std::optional<int> rank,
                          ReadingLimit limit = ReadingLimit());

}  // namespace lockstep::inspect
