// Decides which ranks a collective needs, which of them have entered it or can't enter it any more, and which ranks are
// therefore stuck. Pure.
//
// A rank is stuck if it waits in collectives none of which can end. A collective can't end if a rank that it needs, and
// that has not entered it, has left the cell, died, destroyed the group, or is stuck itself. On devices a call counts
// as entered when no earlier collective of its rank holds the stream back from it. The largest set of such ranks is
// found by removing ranks with a wait that may end, until none is left. So a rank that can still continue is never
// reported.
#pragma once
#include <string>

#include "collectives/log/needed_ranks.h"
#include "inspectors/hang/picture.h"

namespace lockstep::inspect {

/// Returns the group in the rank's log; null if the rank does not know it.
const dist::LoggedGroup* group_of(const RankPicture& rank, const std::string& name);

/// Returns the other ranks without which the wait can't end.
using dist::Needs;
Needs needs_of(const RankPicture& rank, const RankWait& wait);

/// Whether `peer` has destroyed the group of that call, or was never in it.
bool has_left_group(const RankPicture& peer, const dist::CollectiveRecord& call);

/// Whether the device of `rank` comes to its call only after an earlier collective of the rank is done: its stream has
/// not reached the call, and such a collective is in flight.
bool is_held_by_earlier(const RankPicture& rank, const RankWait& wait);

/// Whether `peer` has entered the collective in which `rank` waits; true if that is not known. A call on a device that
/// is held by an earlier one does not count: the others wait for it as for one that has not been made. `peer` is null
/// for a rank without a picture.
bool has_entered(const RankPicture& rank, const RankWait& wait, const RankPicture* peer);

/// Returns the ranks that the wait needs and that have not entered it.
RankSet missing_for(const HangPicture& picture, const RankPicture& rank, const RankWait& wait);
/// Returns those of `missing`, which are missing_for() the wait, that can't enter it any more.
RankSet lost_of(const HangPicture& picture, const RankWait& wait, const RankSet& missing);

/// Returns the largest set of ranks, among `candidates`, that are stuck.
RankSet stuck_ranks(const HangPicture& picture, RankSet candidates);

/// Returns the ranks that `rank` waits for in all its collectives.
RankSet waited_for(const HangPicture& picture, int rank);

}  // namespace lockstep::inspect
