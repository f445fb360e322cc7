// Keeps the cells that were typed in earlier sessions, for the arrow keys: one JSON string a line, in the user's state
// folder. Several terminals may use it at once; each line is added under a lock.
#pragma once
#include <string>
#include <vector>

namespace lockstep::shell {

/// Returns $XDG_STATE_HOME/lockstep/history, or ~/.local/state/lockstep/history; empty where there is no home.
std::string default_history_path();

class HistoryFile {
 public:
  /// No file is made before the first add().
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}

  /// Returns the cells, oldest first, at most `most`. A file that has grown to twice that is cut to it. Lines that are
  /// damaged are left out. None where another user could have put the file there.
  std::vector<std::string> load(size_t most = 5000) const;

  /// Adds a cell. Returns why it can't be written, also since another user could have put the file there; empty where
  /// it was. The session goes on without.
  std::string add(const std::string& text) const;

 private:
  std::string path_;
};

}  // namespace lockstep::shell
