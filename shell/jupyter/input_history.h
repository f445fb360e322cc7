// Keeps the cells that a kernel has run, as Jupyter's frontends ask for them. Session 0 is what was typed in earlier
// sessions and in terminals (shell/terminal/history_file.h), session 1 is this kernel's.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shell/terminal/history_file.h"

namespace lockstep::shell::jupyter {

class InputHistory {
 public:
  explicit InputHistory(HistoryFile file);

  /// `is_kept`: in the file, too.
  void add(int64_t execution_count, const std::string& code, bool is_kept = true);
  /// Sets the value of the newest cell, for those who ask for outputs.
  void set_output(const std::string& text);

  /// Returns the content of a history_reply to that of a history_request: `tail`, `range` and `search` (a pattern with
  /// * and ?, as a shell's; case counts). Unknown kinds and bad numbers give an error reply.
  nlohmann::json answer(const nlohmann::json& request) const;

 private:
  struct Entry {
    int64_t session = 0, line = 0;
    std::string code, output;
  };
  HistoryFile file_;
  std::vector<Entry> entries_;  // oldest first
};

/// Whether all of `text` fits `pattern`, in which * stands for any characters and ? for one.
bool fits_pattern(const std::string& text, const std::string& pattern);

}  // namespace lockstep::shell::jupyter
