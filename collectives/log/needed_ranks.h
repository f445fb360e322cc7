// Says which ranks a collective needs: those without which one of its ranks can't leave it. Pure.
#pragma once
#include "collectives/log/collective_log.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

/// Has the other ranks without which a collective of a rank can't end, because they have to enter it.
struct Needs {
  RankSet ranks;
  bool any = false;  // one of them is enough
  struct Earlier {
    int rank = -1;
    int64_t seq = 0;
  } earlier = {};  // this rank has to enter that collective of the group, the same or an earlier one; rank -1: none
};

/// Returns what `rank` needs to end `call`, as its log has the group at that moment. In shared memory a rank that sends
/// goes on, and waits later for ranks that have not read what lies there; for which one is known while it sleeps.
Needs needs_of(const CollectiveRecord& call, const LoggedGroup& group, int rank);

}  // namespace lockstep::dist
