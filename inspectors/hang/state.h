// Says what ranks are doing, as a sentence, and makes a finding if there has been no progress for long, without a
// proven hang. Pure.
#pragma once
#include <optional>
#include <string>

#include "inspectors/hang/picture.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

/// Returns a sentence about a rank, without its name: "waits 3.1 s in all_reduce #12 (cell 7, line 4) for rank 1".
std::string rank_sentence(const HangPicture& picture, const RankPicture& rank);

/// Returns what the ranks are doing, alike ones together: "ranks 0-2: wait 3.1 s in all_reduce #12; rank 3: computes".
std::string rank_sentences(const HangPicture& picture, const RankSet& ranks);

/// Makes the finding of --hang-timeout: no rank has made progress for `seconds`. Nothing if a rank may be computing and
/// no other rank waits for it.
std::optional<Finding> stalled(const HangPicture& picture, double seconds);

}  // namespace lockstep::inspect
