// What ranks are at, as a sentence, and as a finding where nobody has moved for long. Nothing of it is proven to be a
// hang. Pure.
#pragma once
#include <optional>
#include <string>

#include "inspectors/hang/picture.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

/// One sentence about a rank, without its name: "waits 3.1 s in all_reduce #12 (cell 7, line 4) for rank 1".
std::string rank_sentence(const HangPicture& picture, const RankPicture& rank);

/// Ranks that have not moved for `seconds`: what --hang-timeout reports. Nothing where a rank may simply be computing
/// and nobody waits for it.
std::optional<Finding> stalled(const HangPicture& picture, double seconds);

}  // namespace lockstep::inspect
