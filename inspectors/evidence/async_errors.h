// Reads errors of communicators, which show up some time after the call that they belong to: what ncclCommGetAsyncError
// returns (a ncclResult_t of nccl.h), and c10d::Backend::getError (an ErrorType of Backend.hpp). They are kept as a
// sequence of (rank, group, time, error), of which the first that no other rank caused is the cause.
//
// The text has one JSON object a line, {"rank":1,"group":"default","time_ns":…,"source":"nccl","error":6}; "source" is
// "nccl" or "c10d", "error" the number, and "peer" may name the rank of the other side.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inspectors/evidence/evidence.h"
#include "inspectors/pickle/reading_limit.h"

namespace lockstep::inspect {

/// A value of ncclResult_t (NCCL up to 2.30).
struct NcclResult {
  int64_t value = 0;
  bool in_progress() const { return value == 7; }
  /// Whether it reports what happened to another rank.
  bool remote() const { return value == 6; }
  /// Returns "remote error"; empty for success and in progress.
  std::string words() const;
};

/// A value of c10d::ErrorType.
struct C10dError {
  int64_t value = 0;
  bool remote() const { return value == 3; }
  /// Returns "communication error"; empty for success.
  std::string words() const;
};

inline constexpr size_t kLargestErrorSequence = size_t{16} << 20;

/// Returns the errors in order of time. Throws UnreadableEvidence.
Evidence read_async_errors(std::string_view text, const std::string& origin, ReadingLimit limit = ReadingLimit());

/// Returns all errors of several sequences, in order of time.
std::vector<EvidenceError> all_errors(const std::vector<Evidence>& evidence);

/// Returns the cause in a sequence: the first error that is not remote, of a rank and group that have not recovered from it; if
/// all are remote, the first. Null if there is none.
const EvidenceError* first_cause(const std::vector<EvidenceError>& errors);

}  // namespace lockstep::inspect
