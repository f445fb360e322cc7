#include "shell/session/history.h"

#include <algorithm>

#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {

void History::mark_undone(int64_t number) {
  for (HistoryEntry& entry : entries_)
    if (entry.number == number) entry.undone = true;
}

std::optional<std::string> History::text_of(std::optional<int64_t> number) const {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry)
    if (number ? entry->number == *number : entry->number > 0) return entry->text;
  return std::nullopt;
}

std::vector<const HistoryEntry*> History::select(const std::optional<std::string>& range,
                                                 const std::optional<std::string>& last) const {
  int64_t first_number = 0, last_number = INT64_MAX;
  if (range) {
    const size_t dash = range->find('-');
    first_number = parse_count(range->substr(0, dash), "the number of a cell");
    last_number =
        dash == std::string::npos ? first_number : parse_count(range->substr(dash + 1), "the number of a cell");
    if (last_number < first_number)
      throw UsageError("the range " + *range + " is reversed; write " + std::to_string(last_number) + "-" +
                       std::to_string(first_number));
  }
  std::vector<const HistoryEntry*> selected;
  for (const HistoryEntry& entry : entries_)
    if (!range || (entry.number >= first_number && entry.number <= last_number)) selected.push_back(&entry);
  if (range && selected.empty()) {
    int64_t newest = 0;
    for (const HistoryEntry& entry : entries_) newest = std::max(newest, entry.number);
    throw UsageError(newest == 0 ? "no cell has run yet"
                                 : "there is no cell " + *range + "; cells 1-" + std::to_string(newest) + " have run");
  }
  if (last) {
    const auto most = static_cast<size_t>(parse_count(*last, "the number of cells after -n"));
    if (selected.size() > most) selected.erase(selected.begin(), selected.end() - static_cast<ptrdiff_t>(most));
  }
  return selected;
}

}  // namespace lockstep::shell
