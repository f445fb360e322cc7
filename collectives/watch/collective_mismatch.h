// Turns "ranks called different things at the same place" into the text and the finding that everyone gets.
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

/// "cell 7, line 4" of code of a cell that this process has loaded; set by whoever knows line tables, once, at start.
using PlaceOf = std::function<std::string(uint64_t code_address)>;
void set_place_of(PlaceOf place_of);

/// `called`: what each rank that has come to number `seq` of `group` called; `missing`: the others. `here` knows where this
/// process has the code of cells. Deterministic, so that every rank that knows the same says the same.
CollectiveMismatch make_mismatch(const std::string& group, int64_t seq, const std::map<int, CalledHere>& called,
                                 const RankSet& missing, const CollectiveLogReader& here);

}  // namespace lockstep::dist
