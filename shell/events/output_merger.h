// Merges equal output and values of several ranks into one event with their rank set. Pure: no clock, no socket; times
// come in as arguments.
//
// Ranks are in step while as many lines of each have been emitted. The output of a rank is held until the ranks in step
// with it have written something as well. What is equal is emitted at once, as one event; what differs is emitted per
// rank, in rank order, after the fold time at most. A rank that got ahead is out of step, and is not held any more
// until the others have caught up. The order of the output of one rank never changes, and the events of one rank and
// stream, put together, give its bytes.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/rank_set.h"
#include "protocol/worker_messages.h"
#include "shell/events/event.h"

namespace lockstep::shell {

class OutputMerger {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kDefaultFoldTime{200};
  /// A difference between ranks of more than this many bytes is emitted before the fold time has passed.
  static constexpr size_t kLongDifference = 64 << 10;

  /// `emit` gets OutputEvent and ValueEvent; `consumed` how many bytes of each of these ranks' output have been
  /// emitted; `marked` the marks, when all that the ranks wrote before has been emitted.
  OutputMerger(std::function<void(Event)> emit, std::function<void(const RankSet& ranks, int64_t bytes)> consumed,
               std::function<void(const RankSet& ranks, int64_t cell, const std::string& mark)> marked = nullptr,
               std::chrono::milliseconds fold_time = kDefaultFoldTime);

  /// Sets the ranks that write from now on, all in step.
  void expect(const RankSet& ranks);
  /// Notes that nothing more comes from `rank` until the next expect(): the output of others is not held for it.
  void left(int rank, Clock::time_point now);

  void output(int rank, int64_t cell, Stream stream, std::string bytes, Clock::time_point now);
  /// `as_range`: where ranks show different numbers, they are one value: their range.
  void value(int rank, protocol::Value value, Clock::time_point now);
  /// Puts a point into the output of a rank. It is no output: ranks without it stay in step.
  void mark(int rank, int64_t cell, std::string name, Clock::time_point now);

  /// Returns when due() has something to do; nothing while nothing is held.
  std::optional<Clock::time_point> deadline() const;
  /// Emits what has been held long enough.
  void due(Clock::time_point now);
  /// Emits all.
  void flush();

 private:
  struct Item {
    enum class Kind { output, value, mark };
    Kind kind = Kind::output;
    int64_t cell = 0;
    Stream stream = Stream::standard_output;
    std::string bytes;  // of a value: its text; of a mark: its name
    size_t begin = 0;  // bytes before it are out
    nlohmann::json data;
    std::string label;
    bool as_range = false;
    Clock::time_point since;
    bool is_output() const { return kind == Kind::output; }
    /// Whether it is a number that may be put together with other numbers.
    bool is_of_range() const { return as_range && data.is_number(); }
    bool is_alike(const Item& other) const {
      return same_kind(other) && label == other.label &&
             ((is_of_range() && other.is_of_range()) || (bytes == other.bytes && data == other.data));
    }
    std::string_view rest() const { return std::string_view(bytes).substr(begin); }
    bool same_kind(const Item& other) const {
      return kind == other.kind && cell == other.cell && stream == other.stream;
    }
  };
  struct Queue {
    std::deque<Item> items;
    bool expected = false;
    uint64_t lines = 0, bytes = 0;  // that are out, since expect()
    int64_t next_value = 0;  // the number of the value that the rank shows next
    std::pair<uint64_t, uint64_t> progress() const { return {lines, bytes / kLongDifference}; }
  };

  Queue& queue(int rank);
  std::vector<int> in_step_with(int rank) const;
  bool waits_for_another(int rank);
  void advance(int rank, Clock::time_point now);
  bool merge_common(const std::vector<int>& ranks);
  void emit_expired(Clock::time_point limit, bool final);
  void emit_expired_output(int rank, Clock::time_point limit, bool final);
  bool emit_expired_values(Clock::time_point limit);
  std::vector<int> alike(int rank, size_t& length) const;
  void emit_front(const std::vector<int>& ranks, size_t length);
  ValueEvent number_value(const std::vector<int>& ranks, ValueEvent value);
  ValueEvent value_at_front(const std::vector<int>& ranks) const;

  std::function<void(Event)> emit_;
  std::function<void(const RankSet&, int64_t)> consumed_;
  std::function<void(const RankSet&, int64_t, const std::string&)> marked_;
  const std::chrono::milliseconds fold_time_;
  int64_t next_value_ = 0;  // above all numbers that values have got
  std::map<int, Queue> queues_;
  size_t held_ = 0;  // items of all queues
  int late_ = -1;  // the rank that others were found to wait for last
};

/// Makes events of errors of a cell's ranks: equal ones once; those that follow from others first, root causes last.
std::vector<ErrorEvent> merge_errors(int64_t cell, const std::map<int, protocol::CellError>& errors);

}  // namespace lockstep::shell
