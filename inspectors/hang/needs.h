// Whom a collective needs, who has come to it, who can't come any more, and which ranks therefore can't go on. Pure.
//
// A rank is stuck when it waits in collectives none of which can end, and a collective can't end when a rank that has
// not entered it has left the cell, died, destroyed the group, or is stuck itself. The largest set of ranks for which
// that holds is found by taking out, again and again, those with a wait that may yet end. So nothing is proven that
// could still go on.
#pragma once
#include <string>

#include "inspectors/hang/picture.h"

namespace lockstep::inspect {

/// As the rank's log has it; null where the rank does not know it, or has destroyed it.
const dist::LoggedGroup* group_of(const RankPicture& rank, const std::string& name);

/// Whom a collective of a rank can't end without.
struct Needs {
  RankSet ranks;
  bool any = false;  // one of them is enough
};
Needs needs_of(const RankPicture& rank, const RankWait& wait);

/// Whether `peer` has destroyed the group of that call, or was never in it.
bool has_left_group(const RankPicture& peer, const dist::CollectiveRecord& call);

/// Whether `peer` (null: a rank of which nothing is known) has come to what `rank` waits in. Unknown counts as come.
bool has_come(const RankPicture& rank, const RankWait& wait, const RankPicture* peer);

/// Who is needed for that wait, and has not come.
RankSet missing_for(const HangPicture& picture, const RankPicture& rank, const RankWait& wait);
/// Of those, the ones that can't come whatever the others do.
RankSet lost_for(const HangPicture& picture, const RankPicture& rank, const RankWait& wait);

/// The largest set of ranks, among `candidates`, that can't go on.
RankSet stuck_ranks(const HangPicture& picture, RankSet candidates);

/// Whom rank `rank` waits for in the collectives it sits in, gone or not.
RankSet waited_for(const HangPicture& picture, int rank);

}  // namespace lockstep::inspect
