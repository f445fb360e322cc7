// Walks through the cells of this session and of earlier ones, as the arrow keys do. A cell that is changed on the way
// keeps its change until the next cell is read.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shell/terminal/edit_buffer.h"
#include "shell/terminal/history_file.h"

namespace lockstep::shell {

class CellHistory {
 public:
  /// Loads the cells of `file`, to which add() writes.
  explicit CellHistory(HistoryFile file);

  /// Adds a cell, unless it is empty or equal to the last one. Returns why the file can't be written, once; empty
  /// otherwise. The cell is kept for this session.
  std::string add(const std::string& text);

  /// Returns the number of cells; index 0 is the oldest, index size() the text that is being typed.
  size_t size() const { return cells_.size(); }
  const std::string& operator[](size_t index) const { return cells_[index]; }

  /// Begins a new cell.
  void begin();
  /// Shows the next cell in `direction` (-1: older) that begins with what was typed before the first step.
  void walk(EditBuffer& buffer, int direction);
  /// Makes the next walk() take the text anew that cells must begin with.
  void end_walk() { prefix_.reset(); }
  bool is_walking() const { return prefix_.has_value(); }
  /// Shows cell `index`, as it was changed since begin().
  void show(EditBuffer& buffer, size_t index);
  /// Notes that the buffer shows cell `index`, found by a search that began at `typed`.
  void found(size_t index, const std::string& typed);

 private:
  HistoryFile file_;
  bool file_works_ = true;
  std::vector<std::string> cells_;  // oldest first
  size_t index_ = 0;  // of what the buffer shows
  std::map<size_t, std::string> drafts_;  // cells that were changed, and what is being typed
  std::optional<std::string> prefix_;
};

}  // namespace lockstep::shell
