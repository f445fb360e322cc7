// Makes the error and the finding of ranks that called different collectives as the same number of a group.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "collectives/log/collective_log.h"
#include "protocol/dist_error.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

struct CalledHere {
  CollectiveRecord record;
  std::vector<CollectiveRecord> recent;  // of the same rank, around it
};

/// Returns "cell 7, line 4" for code of a loaded cell. Set once, at start, by whoever knows line tables.
using PlaceOf = std::function<std::string(uint64_t code_address)>;
void set_place_of(PlaceOf place_of);

/// `called` has the call of each rank that has come to number `seq` of `group`, `missing` the other ranks, and `here`
/// the addresses of the code of cells in this process. Deterministic: ranks that know the same make the same error.
CollectiveMismatch make_mismatch(const std::string& group, int64_t seq, const std::map<int, CalledHere>& called,
                                 const RankSet& missing, const CollectiveLogReader& here);

/// Makes the same for a message whose two sides differ in size or dtype, or of which one is an object and one a tensor.
CollectiveMismatch make_message_mismatch(int sender, const CollectiveRecord& sent, int receiver,
                                         const CollectiveRecord& received, const CollectiveLogReader& here);

}  // namespace lockstep::dist
