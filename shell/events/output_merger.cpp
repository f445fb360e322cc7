#include "shell/events/output_merger.h"

#include <algorithm>

#include "protocol/utf8.h"
#include "shell/events/value_range.h"

namespace lockstep::shell {
namespace {

size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first -
                             a.begin());
}

/// Returns the length of the whole lines at the front of `text`; a carriage return ends a line of a progress bar.
size_t whole_lines(std::string_view text) {
  const auto last = text.find_last_of("\n\r");
  return last == std::string_view::npos ? 0 : last + 1;
}

}  // namespace

OutputMerger::OutputMerger(std::function<void(Event)> emit, std::function<void(const RankSet&, int64_t)> consumed,
                           std::function<void(const RankSet&, int64_t, const std::string&)> marked,
                           std::chrono::milliseconds fold_time)
    : emit_(std::move(emit)), consumed_(std::move(consumed)), marked_(std::move(marked)), fold_time_(fold_time) {}

OutputMerger::Queue& OutputMerger::queue(int rank) { return queues_[rank]; }

void OutputMerger::expect(const RankSet& ranks) {
  for (auto& [rank, q] : queues_) q.expected = false;
  for (int rank : ranks) {
    Queue& q = queue(rank);
    q.expected = true;
    q.lines = q.bytes = 0;
    q.next_value = next_value_;
  }
}

void OutputMerger::left(int rank, Clock::time_point now) {
  queue(rank).expected = false;
  if (held_ == 0) return;
  // Others may have waited for it alone.
  for (auto& [other, q] : queues_)
    if (!q.items.empty()) {
      advance(other, now);
      break;
    }
}

void OutputMerger::output(int rank, int64_t cell, Stream stream, std::string bytes, Clock::time_point now) {
  if (bytes.empty()) return;
  auto& items = queue(rank).items;
  if (!items.empty() && items.back().is_output() && items.back().cell == cell && items.back().stream == stream) {
    Item& last = items.back();
    if (last.begin > last.bytes.size() / 2) last.bytes.erase(0, std::exchange(last.begin, 0));
    last.bytes += bytes;
  } else {
    ++held_;
    items.push_back(
        {.cell = cell, .stream = stream, .bytes = std::move(bytes), .data = nullptr, .label = {}, .since = now});
  }
  advance(rank, now);
}

void OutputMerger::value(int rank, protocol::Value value, Clock::time_point now) {
  ++held_;
  queue(rank).items.push_back({.kind = Item::Kind::value,
                               .cell = value.cell,
                               .stream = {},
                               .bytes = std::move(value.text),
                               .data = std::move(value.data),
                               .label = std::move(value.label),
                               .as_range = value.as_range,
                               .since = now});
  advance(rank, now);
}

void OutputMerger::mark(int rank, int64_t cell, std::string name, Clock::time_point now) {
  ++held_;
  queue(rank).items.push_back({.kind = Item::Kind::mark,
                               .cell = cell,
                               .stream = {},
                               .bytes = std::move(name),
                               .data = nullptr,
                               .label = {},
                               .since = now});
  advance(rank, now);
}

std::vector<int> OutputMerger::in_step_with(int rank) const {
  std::vector<int> result;
  const auto progress = queues_.at(rank).progress();
  for (const auto& [other, q] : queues_)
    if ((q.expected || !q.items.empty()) && (other == rank || q.progress() == progress)) result.push_back(other);
  return result;
}

/// Whether a rank that is in step with `rank` is expected to write and has not. The one that was late before mostly still
/// is: of many ranks, each but the last then asks for one other.
bool OutputMerger::waits_for_another(int rank) {
  const auto progress = queues_.at(rank).progress();
  const auto is_late = [&](const auto& each) {
    return each.first != rank && each.second.expected && each.second.items.empty() &&
           each.second.progress() == progress;
  };
  if (const auto known = queues_.find(late_); known != queues_.end() && is_late(*known)) return true;
  const auto found = std::find_if(queues_.rbegin(), queues_.rend(), is_late);
  if (found == queues_.rend()) return false;
  late_ = found->first;
  return true;
}

void OutputMerger::advance(int rank, Clock::time_point now) {
  while (!queues_.at(rank).items.empty() && !waits_for_another(rank)) {
    const auto ranks = in_step_with(rank);
    if (ranks.size() == 1 && queues_.at(rank).expected) {
      emit_front(ranks, queues_.at(rank).items.front().rest().size());
      continue;
    }
    if (!merge_common(ranks)) {
      const bool all_differ =
          std::all_of(ranks.begin(), ranks.end(), [&](int r) { return !queues_.at(r).items.empty(); });
      const bool is_long = std::any_of(ranks.begin(), ranks.end(), [&](int r) {
        const auto& items = queues_.at(r).items;
        return !items.empty() && items.front().rest().size() > kLongDifference;
      });
      if (all_differ && is_long) emit_expired(now, false);
      return;
    }
  }
}

/// Emits what all of `ranks` have at their fronts. Returns false when they have nothing in common that is whole.
bool OutputMerger::merge_common(const std::vector<int>& ranks) {
  const Queue& first = queues_.at(ranks.front());
  if (first.items.empty()) return false;
  const Item& head = first.items.front();
  size_t length = head.rest().size();
  bool complete = true;  // nothing can be added to any of the fronts
  for (int rank : ranks) {
    const Queue& q = queues_.at(rank);
    if (q.items.empty() || !q.items.front().same_kind(head)) return false;
    const Item& other = q.items.front();
    if (!head.is_output()) {
      if (!head.is_alike(other)) return false;
      continue;
    }
    length = std::min(length, common_prefix(head.rest(), other.rest()));
    complete = complete && (q.items.size() > 1 || !q.expected) && other.rest().size() == length;
  }
  if (head.is_output()) {
    for (int rank : ranks) complete = complete && queues_.at(rank).items.front().rest().size() == length;
    if (!complete) length = whole_lines(head.rest().substr(0, length));
    if (length == 0) return false;
  }
  emit_front(ranks, length);
  return true;
}

std::optional<OutputMerger::Clock::time_point> OutputMerger::deadline() const {
  std::optional<Clock::time_point> first;
  if (held_ == 0) return first;
  for (const auto& [rank, q] : queues_)
    if (!q.items.empty() && (!first || q.items.front().since + fold_time_ < *first))
      first = q.items.front().since + fold_time_;
  return first;
}

void OutputMerger::due(Clock::time_point now) { emit_expired(now - fold_time_, false); }

void OutputMerger::flush() { emit_expired(Clock::time_point::max(), true); }

/// Emits what has been held since `limit` or longer, rank by rank, together with what others have that is equal. The
/// k-th values of all ranks come before the next value of any.
void OutputMerger::emit_expired(Clock::time_point limit, bool final) {
  do
    for (const auto& [rank, q] : queues_) emit_expired_output(rank, limit, final);
  while (emit_expired_values(limit));
}

/// Goes up to the next value of `rank`.
void OutputMerger::emit_expired_output(int rank, Clock::time_point limit, bool final) {
  Queue& q = queues_.at(rank);
  while (!q.items.empty() && q.items.front().since <= limit && q.items.front().kind != Item::Kind::value) {
    Item& head = q.items.front();
    size_t length = 0;
    const auto ranks = alike(rank, length);
    if (head.is_output() && !final && q.items.size() == 1 && length == head.rest().size()) {
      // A character that is cut in two would be no text.
      const size_t unfinished = unfinished_utf8(head.rest());
      if (unfinished > 0 && q.expected) {
        if (length > unfinished) emit_front(ranks, length - unfinished);
        for (int r : ranks) queues_.at(r).items.front().since = std::max(limit, head.since) + fold_time_;
        break;
      }
    }
    emit_front(ranks, length);
  }
}

/// Emits one value of each rank that has one at its front. Returns whether there was any.
bool OutputMerger::emit_expired_values(Clock::time_point limit) {
  RankSet due;
  for (const auto& [rank, q] : queues_)
    if (!q.items.empty() && q.items.front().since <= limit && q.items.front().kind == Item::Kind::value)
      due.insert(rank);
  for (RankSet left = due; !left.empty();) {
    const int rank = left.ranks().front();
    size_t length = 0;
    const std::vector<int> ranks = alike(rank, length);
    emit_front(ranks, length);
    left = left - RankSet(ranks);
  }
  return !due.empty();
}

/// Returns the ranks that have at their fronts what `rank` has, and how much they share: all of it, or whole lines.
std::vector<int> OutputMerger::alike(int rank, size_t& length) const {
  const Item& head = queues_.at(rank).items.front();
  length = head.rest().size();
  std::vector<int> result = {rank};
  for (const auto& [other, q] : queues_) {
    if (other <= rank || q.items.empty() || !q.items.front().same_kind(head)) continue;
    const Item& item = q.items.front();
    if (!head.is_output()) {
      if (head.is_alike(item)) result.push_back(other);
      continue;
    }
    const size_t common = common_prefix(head.rest().substr(0, length), item.rest());
    const size_t shared =
        common == length && item.rest().size() == length ? length : whole_lines(head.rest().substr(0, common));
    if (shared == 0) continue;
    length = shared;
    result.push_back(other);
  }
  return result;
}

/// Takes `length` bytes (of a value: all) from the front of each of `ranks`, which have them in common, and emits them.
void OutputMerger::emit_front(const std::vector<int>& ranks, size_t length) {
  Item& head = queues_.at(ranks.front()).items.front();
  const Item::Kind kind = head.kind;
  const int64_t cell = head.cell;
  Event event;
  std::string mark;
  if (kind == Item::Kind::mark)
    mark = head.bytes;
  else if (kind == Item::Kind::value)
    event = number_value(ranks, value_at_front(ranks));
  else if (head.begin == 0 && length == head.bytes.size())
    event = OutputEvent{head.cell, RankSet(ranks), head.stream, head.bytes};
  else
    event = OutputEvent{head.cell, RankSet(ranks), head.stream, std::string(head.rest().substr(0, length))};
  const auto text = head.rest().substr(0, length);
  const uint64_t lines = kind == Item::Kind::value ? 1
                         : kind == Item::Kind::output
                             ? static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n'))
                             : 0;
  for (int rank : ranks) {
    Queue& q = queues_.at(rank);
    if (kind == Item::Kind::output) {
      q.bytes += length;
      q.items.front().begin += length;
    }
    q.lines += lines;
    if (kind != Item::Kind::output || q.items.front().rest().empty()) {
      q.items.pop_front();
      --held_;
    }
  }
  if (kind == Item::Kind::mark) {
    if (marked_) marked_(RankSet(ranks), cell, mark);
    return;
  }
  emit_(std::move(event));
  if (kind == Item::Kind::output) consumed_(RankSet(ranks), static_cast<int64_t>(length));
}

/// Returns `value` of `ranks` with its number and its label.
ValueEvent OutputMerger::number_value(const std::vector<int>& ranks, ValueEvent value) {
  for (const int rank : ranks) value.number = std::max(value.number, queues_.at(rank).next_value);
  for (const int rank : ranks) queues_.at(rank).next_value = value.number + 1;
  next_value_ = std::max(next_value_, value.number + 1);
  value.label = queues_.at(ranks.front()).items.front().label;
  const bool has_lines = value.text.find('\n') != std::string::npos;
  if (!value.label.empty()) value.text = value.label + (has_lines ? ":\n" : ": ") + value.text;
  return value;
}

/// Returns the value at the front of `ranks`, equal on all of them, or a number of each that is shown as a range.
ValueEvent OutputMerger::value_at_front(const std::vector<int>& ranks) const {
  const Item& head = queues_.at(ranks.front()).items.front();
  const bool is_equal = std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
    const Item& other = queues_.at(rank).items.front();
    return other.bytes == head.bytes && other.data == head.data;
  });
  if (is_equal) return {.cell = head.cell, .ranks = RankSet(ranks), .text = head.bytes, .data = head.data, .label = {}};
  std::map<int, nlohmann::json> values;
  for (const int rank : ranks) values[rank] = queues_.at(rank).items.front().data;
  return range_of_values(head.cell, values);
}

std::vector<ErrorEvent> merge_errors(int64_t cell, const std::map<int, protocol::CellError>& errors) {
  std::vector<ErrorEvent> events;
  for (const auto& [rank, error] : errors) {
    const auto same = std::find_if(events.begin(), events.end(), [&](const ErrorEvent& e) {
      return e.type == error.type && e.message == error.message && e.where.value_or("") == error.where &&
             e.root_cause == error.root_cause;
    });
    if (same != events.end()) {
      same->ranks.insert(rank);
      continue;
    }
    ErrorEvent event{.cell = cell, .ranks = {rank}, .type = error.type, .message = error.message};
    if (!error.where.empty()) event.where = error.where;
    event.root_cause = error.root_cause;
    event.stack = error.stack;
    event.traceback = error.traceback;
    events.push_back(std::move(event));
  }
  std::stable_partition(events.begin(), events.end(), [](const ErrorEvent& e) { return !e.root_cause; });
  return events;
}

}  // namespace lockstep::shell
