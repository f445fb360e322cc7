// The cells of a session as they were typed, for %history, %save, %undo and %edit.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/rank_set.h"
#include "protocol/status.h"

namespace lockstep::shell {

struct HistoryEntry {
  int64_t number = 0;  // 0: a cell of magics alone
  std::string title;
  std::string text;
  RankSet ranks;
  CellStatus status = CellStatus::ok;
  int64_t faults = 0;  // findings
  bool undone = false;  // %undo
};

class History {
 public:
  void add(HistoryEntry entry) { entries_.push_back(std::move(entry)); }
  void mark_undone(int64_t number);
  const std::vector<HistoryEntry>& entries() const { return entries_; }  // oldest first

  /// Returns entries whose numbers are in `range`, as `7` or `3-7` (nothing: all), at most the `last` newest of them,
  /// oldest first. Throws UsageError for a bad range.
  std::vector<const HistoryEntry*> select(const std::optional<std::string>& range,
                                          const std::optional<std::string>& last) const;
  /// Returns the text of the newest cell with this number, or of the last cell; nothing where there is none.
  std::optional<std::string> text_of(std::optional<int64_t> number) const;

 private:
  std::vector<HistoryEntry> entries_;
};

}  // namespace lockstep::shell
