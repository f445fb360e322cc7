// progress(range), which cell.h declares: a range whose loop reports how far it is. The template hands elements through
// and counts; what is reported when is in the worker.
//
// A loop begins with begin() and ends when its iterator meets the end, or with the range (a break, an exception). Loops
// within loops know the one around them by the thread that runs them. The same loop has the same name on all ranks: its
// place in the text, the pass of the loop around it, and how often it has begun in that pass. So the session puts the
// ranks together, also where one is ahead.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "protocol/status.h"

namespace lockstep {

struct ProgressOptions {
  std::string label;  // before the numbers
  std::optional<int64_t> total = {};  // turns; the range's size where it has one
};

namespace detail {

/// Counts one loop, and reports at most five times a second. Not synchronised: the thread that runs the loop uses it.
class ProgressLoop {
 public:
  ProgressLoop(std::string label, std::optional<int64_t> total, const std::source_location& where);
  ~ProgressLoop();
  ProgressLoop(const ProgressLoop&) = delete;
  ProgressLoop& operator=(const ProgressLoop&) = delete;

  void begin();  // ends the pass that is under way
  void advance();  // a turn is over
  void complete();  // the range has ended

 private:
  struct Thread;
  static Thread& this_thread();
  void end(bool is_complete);
  void report(LoopState state, int64_t now_ns) const;

  const std::string label_;
  const std::optional<int64_t> total_;
  const std::string site_;
  const int line_;
  Thread* thread_ = nullptr;  // that runs it; null while no pass is under way
  int64_t cell_ = 0, done_ = 0, begun_ns_ = 0, next_ns_ = 0;
  bool is_reported_ = false;
  std::string name_, parent_;
  std::map<std::string, int64_t> begun_inside_;  // in this turn: site → loops
};

template <typename Range>
constexpr auto begin_of(Range& range) {
  using std::begin;
  return begin(range);
}
template <typename Range>
constexpr auto end_of(Range& range) {
  using std::end;
  return end(range);
}

template <typename T>
concept Count = std::integral<std::remove_cvref_t<T>> && !std::same_as<std::remove_cvref_t<T>, bool>;

template <typename T>
struct LoopOverRange {
  using type = T;  // a reference for an lvalue
};
template <Count T>
struct LoopOverRange<T> {
  using type = std::ranges::iota_view<std::remove_cvref_t<T>, std::remove_cvref_t<T>>;
};
template <typename T>
using LoopOver = typename LoopOverRange<T>::type;

template <typename Loop, typename T>
decltype(auto) loop_over(T&& range) {
  if constexpr (Count<T>)
    return Loop(0, range < 0 ? std::remove_cvref_t<T>(0) : range);
  else
    return std::forward<T>(range);
}

template <typename Range>
std::optional<int64_t> size_of(Range& range) {
  if constexpr (std::ranges::sized_range<Range>)
    return static_cast<int64_t>(std::ranges::size(range));
  else if constexpr (requires {
                       { range.size() } -> std::integral;
                     })
    return static_cast<int64_t>(range.size());
  else
    return std::nullopt;
}

}  // namespace detail

template <typename Range>
class ProgressRange {
  using Begin = decltype(detail::begin_of(std::declval<std::remove_reference_t<Range>&>()));
  using End = decltype(detail::end_of(std::declval<std::remove_reference_t<Range>&>()));

 public:
  template <typename Given>
  ProgressRange(Given&& range, const ProgressOptions& options, const std::source_location& where)
      : range_(std::forward<Given>(range)),
        loop_(options.label, options.total ? options.total : detail::size_of(range_), where) {}

  struct Sentinel {
    mutable End end;
  };
  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = std::remove_cvref_t<decltype(*std::declval<Begin&>())>;
    using iterator_concept = std::input_iterator_tag;

    Iterator(Begin at, detail::ProgressLoop* loop) : at_(std::move(at)), loop_(loop) {}
    decltype(auto) operator*() const { return *at_; }
    Iterator& operator++() {
      loop_->advance();
      ++at_;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& iterator, const Sentinel& sentinel) {
      const bool is_over = !(iterator.at_ != sentinel.end);
      if (is_over) iterator.loop_->complete();
      return is_over;
    }

   private:
    mutable Begin at_;  // that of a DataLoader is read through a pointer that is not const
    detail::ProgressLoop* loop_;
  };

  Iterator begin() {
    loop_.begin();
    return Iterator(detail::begin_of(range_), &loop_);
  }
  Sentinel end() { return {detail::end_of(range_)}; }

 private:
  Range range_;
  detail::ProgressLoop loop_;
};

}  // namespace lockstep
