// Finds ranks whose calls with the same number in a group differ, if ranks do not compare their calls themselves
// (--check-collectives off). Pure.
#pragma once
#include <vector>

#include "inspectors/hang/analysis.h"

namespace lockstep::inspect {

/// Concerns only calls in which some rank waits.
std::vector<ProvenHang> mismatched_calls(const HangPicture& picture);

}  // namespace lockstep::inspect
