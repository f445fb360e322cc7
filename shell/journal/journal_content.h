// What a journal holds as a whole: the session, and its cells with how they ended. For lists, scripts and running the
// cells again.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "protocol/status.h"

namespace lockstep::shell {

struct JournalEntry {
  bool markdown = false;
  int64_t input = 0;  // its number among all that were typed, from 1
  int64_t number = 0;  // of a cell that had code
  std::string title, text;
  std::optional<CellStatus> status;  // none: the session ended first
  int64_t faults = 0;
  bool undone = false;  // %undo
};

struct JournalContent {
  nlohmann::json description = nlohmann::json::object();  // Journal's record of the session
  int ranks = 0;  // of its first start; 0: it has not started
  std::string backend;
  std::vector<JournalEntry> entries;
  bool is_closed = false;  // the session has ended, and could write that
  int damaged = 0;  // records that can't be read
  int64_t inputs = 0;  // cells that have begun, as far as is known

  bool is_python() const { return description.value("language", "") == "python"; }
  int64_t started() const { return description.value("started", int64_t{0}); }
  size_t cells() const;
  int64_t missing_cells() const;
};

/// Reads the journal in the folder `path`, without its output, which may be long.
JournalContent read_journal(const std::string& path);

}  // namespace lockstep::shell
