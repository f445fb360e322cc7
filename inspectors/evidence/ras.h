// Asks NCCL's RAS what NCCL's own threads know about all processes of a job, while its ranks are stuck. They form a
// network apart from the collectives, and one of them answers on a socket of each machine (NCCL 2.24 and later; JSON
// from 2.28.7). Protocol and format: src/ras/client_support.cc of NCCL 2.28.9, 2.29.7 and 2.30.7, and its user guide,
// "RAS".
#pragma once
#include <chrono>
#include <string>
#include <string_view>

#include "inspectors/evidence/evidence.h"
#include "inspectors/pickle/reading_limit.h"

namespace lockstep::inspect {

/// Larger answers are refused. A rank takes some 600 bytes.
inline constexpr size_t kLargestRasAnswer = size_t{64} << 20;

struct RasOptions {
  /// "HOST:PORT" or "[IPv6]:PORT", as NCCL_RAS_ADDR has it; empty: NCCL_RAS_ADDR, or localhost:28028.
  std::string address;
  /// The deadline is of the whole call, with connecting.
  std::chrono::milliseconds deadline{2000};
  /// How long RAS waits for processes that do not answer: whole seconds, at least 1. It answers later than this where
  /// processes are missing, so it is shorter than the deadline.
  std::chrono::seconds patience{1};
};

/// Asks the RAS of this machine for the state of all communicators. Blocks, at most for the deadline. Throws
/// UnreadableEvidence where nobody listens, where the answer is late, cut off, or of an NCCL without JSON.
Evidence ask_ras(const RasOptions& options = {});

/// Returns the JSON answer unread, as text.
std::string ras_answer(const RasOptions& options = {});

/// Reads the JSON answer. Ranks of members are not set (name_ranks); a communicator's name is its hash and secondary
/// hash. Throws UnreadableEvidence.
Evidence read_ras(std::string_view json, const std::string& origin, ReadingLimit limit = ReadingLimit());

}  // namespace lockstep::inspect
