// Reads a journal back, record by record, in the order in which they were written. A torn last line is dropped, a damaged
// one too; nothing else is.
#pragma once
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::shell {

class JournalReader {
 public:
  /// `path` is the folder of a journal. Without its output that is among what is missing.
  explicit JournalReader(const std::string& path, bool with_output = true);

  /// Returns the next record; nothing at the end. Where records are not there any more comes one with the event
  /// "missing": `records`, and `reason` ("size": the oldest output and cells go; "lost": they could not be written, or
  /// are damaged).
  std::optional<nlohmann::json> next();

  /// The number of the record that was returned last; 0: none was.
  uint64_t last() const { return last_; }

  /// Lines that are not what was written, but for the last of a file.
  int damaged() const { return damaged_; }

 private:
  /// The lines of files that follow one another.
  struct Source {
    std::vector<std::string> paths;
    size_t at = 0;
    std::ifstream file;
    std::optional<nlohmann::json> ahead;
    bool has_gap = false;  // a file before the next record has been removed
  };
  void read_ahead(Source& source);

  Source sources_[2];  // cells, output
  uint64_t gone_until_ = 0;  // the number of the first record behind files that have been removed; 0: none has
  uint64_t last_ = 0;
  int damaged_ = 0;
};

}  // namespace lockstep::shell
