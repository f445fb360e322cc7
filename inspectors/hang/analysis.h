// Who waits for whom in vain, told by causes: whoever waits for a rank that has gone, or for one that waits so, is a
// consequence of that; what is left goes round in circles. Pure: a picture in, findings out. Who is stuck at all,
// needs.h says.
#pragma once
#include <string>
#include <vector>

#include "inspectors/hang/picture.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

/// The mend, where ranks disagree on what comes next.
inline constexpr const char* kOneOrder =
    "All ranks of a group must make the same calls in the same order; where ranks use several groups, in one order "
    "over all of them";

/// A hang that is proven.
struct ProvenHang {
  Finding finding;
  RankSet waiting;  // ranks that wait in vain, in collectives
  RankSet missing;  // whom they wait for
  std::string key;  // equal for the same hang at another time
  /// A rank that is waited for threw what is a finding of its own (dist::CollectiveMismatch): this is no other fault.
  bool consequence = false;
};

struct HangAnalysis {
  std::vector<ProvenHang> proven;
  /// Ranks whose logs allow a hang, while their threads were not seen waiting: worth another look.
  bool suspicious = false;
};
HangAnalysis analyse_hang(const HangPicture& seen);

}  // namespace lockstep::inspect
