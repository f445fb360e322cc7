// Searches the history while words are typed (Ctrl-R), as readline does.
#pragma once
#include <string>

#include "shell/terminal/cell_history.h"
#include "shell/terminal/edit_buffer.h"
#include "shell/terminal/key_decoder.h"

namespace lockstep::shell {

class HistorySearch {
 public:
  HistorySearch(CellHistory& history, EditBuffer& buffer)
      : history_(history), buffer_(buffer), typed_(buffer.text()), cursor_(buffer.cursor()), index_(history.size()) {}

  enum class Took {
    key,       // the search goes on
    last_key,  // the search is over
    nothing,   // the search is over, and the key is for the text that is shown
  };
  Took take(const Key& key);

  const std::string& words() const { return words_; }
  bool has_failed() const { return has_failed_; }

 private:
  void look(int direction, bool stay);

  CellHistory& history_;
  EditBuffer& buffer_;
  std::string typed_;  // before the search
  size_t cursor_;
  std::string words_;
  size_t index_;  // of the cell that is shown
  bool has_failed_ = false;
};

}  // namespace lockstep::shell
