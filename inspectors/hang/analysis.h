// Which ranks wait for whom without end, by causes: ranks that wait for a rank that is gone, directly or through other
// ranks, are consequences of that; the remaining ones wait for one another (circles.h), or for ranks that do. needs.h finds
// the stuck ranks. Pure: a picture in, findings out.
#pragma once
#include <string>
#include <vector>

#include "inspectors/hang/picture.h"
#include "protocol/finding.h"

namespace lockstep::inspect {

/// A hang that is proven.
struct ProvenHang {
  Finding finding;
  RankSet waiting;  // ranks in collectives that can't end
  RankSet missing;  // the ranks that they wait for
  std::string key;  // the same for the same hang at another time
  bool consequence = false;  // of an error that has a finding of its own (dist::CollectiveMismatch)
};

struct HangAnalysis {
  std::vector<ProvenHang> proven;
  /// Whether the logs allow a further hang, but the threads of its ranks do not wait (yet): it should be checked again.
  bool suspicious = false;
};
HangAnalysis analyse_hang(const HangPicture& seen);

}  // namespace lockstep::inspect
