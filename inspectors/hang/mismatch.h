// Ranks that called different things at the same place of a group, where nobody compared them before
// (--check-collectives off). Pure.
#pragma once
#include <vector>

#include "inspectors/hang/analysis.h"

namespace lockstep::inspect {

/// Of the places in which somebody waits.
std::vector<ProvenHang> mismatched_calls(const HangPicture& picture);

}  // namespace lockstep::inspect
