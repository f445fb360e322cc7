// Who waits for whom, and which of these waits can never end. Pure: a picture in, findings out.
//
// A rank is stuck when it waits in collectives none of which can end, and a collective can't end when a rank that has not entered
// it has left the cell, died, destroyed the group, or is stuck itself. The largest set of ranks for which that holds is found by
// taking out, again and again, those with a wait that may yet end. So nothing is proven that could still go on.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "inspectors/hang_picture.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

/// A hang that is proven.
struct ProvenHang {
  Finding finding;
  RankSet waiting;  // ranks that wait in vain, in collectives
  RankSet missing;  // whom they wait for
  std::string key;  // equal for the same hang at another time
};

struct HangAnalysis {
  std::vector<ProvenHang> proven;
  /// Ranks whose logs allow a hang, while their threads were not seen waiting: worth another look.
  bool suspicious = false;
};
HangAnalysis analyse_hang(const HangPicture& picture);

/// Whom rank `rank` waits for in the collectives it sits in, gone or not.
RankSet waited_for(const HangPicture& picture, int rank);

/// Ranks that have not moved for `seconds`: what --hang-timeout reports. Nothing where a rank may simply be computing and nobody
/// waits for it.
std::optional<Finding> stalled(const HangPicture& picture, double seconds);

/// One sentence about a rank, without its name: "waits 3.1 s in all_reduce #12 (cell 7, line 4) for rank 1".
std::string rank_sentence(const HangPicture& picture, const RankPicture& rank);

}  // namespace lockstep::inspect
