// Makes the error and the finding of ranks that called different collectives as the same number of a group.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "collectives/log/collective_record.h"
#include "protocol/dist_error.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

struct CalledHere {
  CollectiveRecord record;
  std::vector<CollectiveRecord> recent;  // of the same rank, around it
};

/// Returns where the program has made the call: "train.py:88 in step"; an empty text where that is not known.
using PlaceOfCall = std::function<std::string(const CollectiveRecord& call)>;

/// `called` has the call of each rank that has come to number `seq` of `group`, and `missing` the other ranks.
/// Deterministic: ranks that know the same make the same error.
CollectiveMismatch make_mismatch(const std::string& group, int64_t seq, const std::map<int, CalledHere>& called,
                                 const RankSet& missing, const PlaceOfCall& place_of);

/// Makes the same for a message whose two sides differ in size or dtype, or of which one is an object and one a tensor.
CollectiveMismatch make_message_mismatch(int sender, const CollectiveRecord& sent, int receiver,
                                         const CollectiveRecord& received, const PlaceOfCall& place_of);

}  // namespace lockstep::dist
