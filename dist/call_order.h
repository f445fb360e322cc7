// Two ranks called different collectives at the same place: are they the same ones in another order?
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dist/collective_record.h"

namespace lockstep::dist {

/// How it is known that rank B's call at a place is out of order.
struct OrderMismatch {
  bool swapped = false;  // each called what the other called, one place later
  int64_t before = 0;    // else: number at which both ranks called A's call, and B's call right after it
};

/// `a`, `b`: records of two ranks, oldest first, with their different calls as number `seq` of `group` among them. Nothing
/// where the records do not show it. One earlier turn of a loop is enough where the two calls stand on different lines; calls of
/// one line (a loop over tensors) need two, since a tensor may simply have another shape this time.
std::optional<OrderMismatch> order_mismatch(const std::vector<CollectiveRecord>& a,
                                            const std::vector<CollectiveRecord>& b, const std::string& group,
                                            int64_t seq);

}  // namespace lockstep::dist
