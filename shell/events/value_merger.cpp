#include "shell/events/value_merger.h"

#include <algorithm>

namespace lockstep::shell {

bool merge_value(std::vector<ValueEvent>& values, const ValueEvent& event, const RankSet& all,
                 const std::function<void()>& show) {
  RankSet shown;
  for (const ValueEvent& other : values) shown = shown | other.ranks;
  if (!(shown & event.ranks).empty()) {
    show();
    shown = {};
  }
  const auto same = std::ranges::find_if(
      values, [&](const ValueEvent& other) { return other.text == event.text && other.data == event.data; });
  if (same != values.end())
    same->ranks = same->ranks | event.ranks;
  else
    values.push_back(event);
  return (all - (shown | event.ranks)).empty();
}

}  // namespace lockstep::shell
