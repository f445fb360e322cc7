// Turns "ranks called different things at the same place" into the text and the finding that everyone gets.
#pragma once
#include <map>
#include <string>

#include "dist/collective_record.h"
#include "dist/errors.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

/// `called`: what each rank that has come to number `seq` of `group` called; `missing`: the others. Deterministic, so that
/// every rank that knows the same says the same.
CollectiveMismatch make_mismatch(const std::string& group, int64_t seq, const std::map<int, CollectiveRecord>& called,
                                 const RankSet& missing);

}  // namespace lockstep::dist
