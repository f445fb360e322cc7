// Finds ranks whose calls with the same number in a group differ, if ranks do not compare their calls themselves
// (--check-collectives off, or ranks on different machines). Pure.
#pragma once
#include <optional>
#include <vector>

#include "inspectors/hang/analysis.h"

namespace lockstep::inspect {

/// Returns what ranks called as number `seq` of `group`, by their logs, as a finding of `inspector`. Nothing where the
/// logs do not show two different calls, or a rank has reported them itself.
std::optional<Finding> mismatch_of_call(const HangPicture& picture, const std::string& group, int64_t seq,
                                        const std::string& inspector);

/// Concerns only calls in which some rank waits.
std::vector<ProvenHang> mismatched_calls(const HangPicture& picture);

}  // namespace lockstep::inspect
