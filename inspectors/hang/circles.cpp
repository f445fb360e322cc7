#include "inspectors/hang/circles.h"

#include <algorithm>
#include <map>

namespace lockstep::inspect {
namespace {

/// Returns for each call the calls that it waits for, directly or through others.
std::vector<std::vector<bool>> reached_calls(const std::vector<CallWait>& waits) {
  std::map<int, std::vector<size_t>> calls_of;  // rank → the calls in which it waits
  for (size_t i = 0; i < waits.size(); ++i)
    for (const int rank : waits[i].waiting) calls_of[rank].push_back(i);
  std::vector<std::vector<bool>> reached(waits.size(), std::vector<bool>(waits.size()));
  for (size_t i = 0; i < waits.size(); ++i)
    for (std::vector<size_t> open = {i}; !open.empty();) {
      const RankSet& missing = waits[open.back()].missing;
      open.pop_back();
      for (const int rank : missing)
        for (const size_t next : calls_of[rank])
          if (!reached[i][next]) reached[i][next] = true, open.push_back(next);
    }
  return reached;
}

}  // namespace

std::vector<Circle> circles_of(const std::vector<CallWait>& waits) {
  const auto reached = reached_calls(waits);
  const auto lowest = [&](size_t call) { return waits[call].waiting.ranks().front(); };
  const auto size = [&](size_t call) { return waits[call].waiting.size(); };
  std::vector<Circle> circles;
  std::vector<bool> found(waits.size());
  for (size_t i = 0; i < waits.size(); ++i) {
    Circle circle;
    for (size_t other = i; other < waits.size() && !found[i]; ++other)
      if (reached[i][other] && reached[other][i]) circle.calls.push_back(other);
    if (circle.calls.empty()) continue;
    std::ranges::stable_sort(circle.calls, {}, lowest);
    circle.largest = *std::ranges::max_element(circle.calls, {}, size);
    for (const size_t call : circle.calls) found[call] = true, circle.ranks = circle.ranks | waits[call].waiting;
    // The rank of a circle of one call waits for itself.
    const bool one = circle.calls.size() == 1;
    circle.majority = majority_of(circle.ranks, one ? RankSet() : waits[circle.largest].waiting);
    circles.push_back(std::move(circle));
  }
  std::ranges::stable_sort(circles, {}, [&](const Circle& circle) { return lowest(circle.calls.front()); });
  return circles;
}

}  // namespace lockstep::inspect
