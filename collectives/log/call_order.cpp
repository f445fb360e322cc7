#include "collectives/log/call_order.h"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace lockstep::dist {
namespace {

using Calls = std::map<int64_t, const CollectiveRecord*>;

Calls calls_of(const std::vector<CollectiveRecord>& records, const std::string& group) {
  Calls calls;
  for (const CollectiveRecord& record : records)
    if (record.group == group && !record.point_to_point) calls[record.seq] = &record;
  return calls;
}

bool is(const Calls& calls, int64_t seq, const CollectiveRecord& what) {
  const auto found = calls.find(seq);
  return found != calls.end() && fit_together(*found->second, what);
}

/// Whether the rank makes `what` from the same place of its code as the call of that number.
bool same_site(const Calls& calls, int64_t seq, const CollectiveRecord& what) {
  const auto found = calls.find(seq);
  return found != calls.end() && what.call_site != 0 && found->second->call_site == what.call_site;
}

}  // namespace

std::optional<OrderMismatch> order_mismatch(const std::vector<CollectiveRecord>& a,
                                            const std::vector<CollectiveRecord>& b, const std::string& group,
                                            int64_t seq, OrderProof proof) {
  const Calls first = calls_of(a, group), second = calls_of(b, group);
  const auto x = first.find(seq), y = second.find(seq);
  if (x == first.end() || y == second.end() || fit_together(*x->second, *y->second)) return std::nullopt;
  if (is(first, seq + 1, *y->second) && is(second, seq + 1, *x->second)) return OrderMismatch{.swapped = true};
  const auto last = first.find(seq - 1);
  for (auto k = std::make_reverse_iterator(x); k != first.rend(); ++k) {
    const int64_t n = k->first;
    if (proof == OrderProof::turns) {
      // In a loop each call follows the other: what came before this place tells which of the two is next.
      if (last != first.end() && !is(first, n - 1, *last->second)) continue;
    } else if (!same_site(first, n, *x->second) || !same_site(second, n + 1, *y->second) ||
               same_site(second, n, *y->second)) {
      continue;  // one line, whose tensor may have another shape this time
    }
    if (is(first, n, *x->second) && is(second, n, *x->second) && is(first, n + 1, *y->second) &&
        is(second, n + 1, *y->second))
      return OrderMismatch{.before = n};
  }
  return std::nullopt;
}

namespace {
Verdict verdict_of(const CollectiveRecord& a, const CollectiveRecord& b) {
  if (a.op != b.op) return Verdict::op_mismatch;
  if (a.dtype != b.dtype) return Verdict::dtype_mismatch;
  if (a.shape != b.shape || a.tensor_count != b.tensor_count) return Verdict::shape_mismatch;
  if (a.root != b.root || a.reduce_op != b.reduce_op) return Verdict::op_mismatch;
  return Verdict::shape_mismatch;  // split sizes, or tensors after the first
}
}  // namespace

CallDifference difference_of(const std::vector<Camp>& camps, const std::string& group, int64_t seq) {
  const Camp &smallest = camps.front(), &largest = camps.back();
  // Whose call came too early? The one that ranks used to make second.
  for (const OrderProof proof : {OrderProof::turns, OrderProof::lines})
    for (const auto& [right, early] : {std::pair{&largest, &smallest}, std::pair{&smallest, &largest}}) {
      const auto order =
          camps.size() == 2 ? order_mismatch(*right->recent, *early->recent, group, seq, proof) : std::nullopt;
      if (!order) continue;
      return {Verdict::order_mismatch,
              order->swapped
                  ? ": the same calls in another order"
                  : fmt::format(": at #{} all called {} and then {}, so {} left out the first or changed the order",
                                order->before, describe(*right->call), describe(*early->call), early->ranks.words())};
    }
  return {verdict_of(*smallest.call, *largest.call), {}};
}

}  // namespace lockstep::dist
