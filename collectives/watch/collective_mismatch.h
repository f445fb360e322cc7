// Knows where in the program the calls of ranks were, for errors about calls that differ
// (collectives/log/call_mismatch.h).
#pragma once
#include <functional>
#include <string>

#include "collectives/log/call_mismatch.h"
#include "collectives/log/collective_log.h"

namespace lockstep::dist {

/// Returns "cell 7, line 4" for code of a loaded cell. Set once, at start, by whoever knows line tables.
using PlaceOf = std::function<std::string(uint64_t code_address)>;
void set_place_of(PlaceOf place_of);

/// Returns the place of a call of any rank, of which `here`, this rank's log, has the addresses of cells; an empty text
/// where it is not known.
std::string place_of(const CollectiveRecord& record, const CollectiveLogReader& here);

}  // namespace lockstep::dist
