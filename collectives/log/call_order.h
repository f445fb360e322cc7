// Ranks called different collectives as the same number of a group: what differs, and did they make the same calls in
// another order?
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/log/collective_record.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

/// How it is known that rank B's call is out of order.
struct OrderMismatch {
  bool swapped = false;  // each called as its next what the other called here
  int64_t before = 0;    // else: number at which both ranks called A's call, and B's call right after it
};

enum class OrderProof {
  turns,  // two earlier turns of a loop, or the calls after this one
  lines,  // one earlier turn, in which the two calls came from two lines; it may be either that is early
};

/// `a` and `b` are records of two ranks, oldest first, with their different calls as number `seq` of `group` among
/// them. Returns nothing where the records do not show another order. Calls of one line (a loop over tensors) need
/// `turns`, since a tensor may have another shape.
std::optional<OrderMismatch> order_mismatch(const std::vector<CollectiveRecord>& a,
                                            const std::vector<CollectiveRecord>& b, const std::string& group,
                                            int64_t seq, OrderProof proof = OrderProof::turns);

/// Ranks that made the same call. The pointers are to values of the caller.
struct Camp {
  RankSet ranks;
  const CollectiveRecord* call = nullptr;
  const std::vector<CollectiveRecord>* recent = nullptr;  // of one of the ranks, with the call among them
};

struct CallDifference {
  Verdict verdict{};
  std::string order_words;  // ": the same calls in another order"; empty where the order does not explain it
};

/// What differs between the calls of `camps`, of which there are at least two, the smallest first and the largest last.
CallDifference difference_of(const std::vector<Camp>& camps, const std::string& group, int64_t seq);

}  // namespace lockstep::dist
