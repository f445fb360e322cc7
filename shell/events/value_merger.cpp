#include "shell/events/value_merger.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep::shell {

void ValueMerger::set_ranks(const RankSet& ranks) {
  all_ = ranks;
  next_.clear();
}

void ValueMerger::add(const ValueEvent& event) {
  std::vector<ValueEvent>& values = held_[event.number];
  const auto same = std::ranges::find_if(
      values, [&](const ValueEvent& other) { return other.text == event.text && other.data == event.data; });
  if (same != values.end())
    same->ranks = same->ranks | event.ranks;
  else
    values.push_back(event);
  for (const int rank : event.ranks) next_[rank] = event.number + 1;
  int64_t complete = std::numeric_limits<int64_t>::max();
  for (const int rank : all_) complete = std::min(complete, next_[rank]);
  show_until(complete);
}

void ValueMerger::flush() { show_until(std::numeric_limits<int64_t>::max()); }

void ValueMerger::show_until(int64_t number) {
  while (!held_.empty() && held_.begin()->first < number) {
    std::vector<ValueEvent> values = std::move(held_.extract(held_.begin()).mapped());
    std::ranges::sort(values, {}, &ValueEvent::ranks);
    show_(values);
  }
}

}  // namespace lockstep::shell
