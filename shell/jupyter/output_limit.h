// Limits how much of a cell's output a notebook gets. What is too much for it goes to a file without a name, which the
// system removes with the kernel, however that ends.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/descriptor.h"

namespace lockstep::shell::jupyter {

class OutputLimit {
 public:
  static constexpr int64_t kMostLines = 2000;
  static constexpr size_t kMostBytes = 400'000;
  static constexpr size_t kLastLines = 20;  // that are shown at the end
  static constexpr size_t kMostFiles = 8;  // those of the last cells are kept

  /// A new cell begins.
  void begin();
  /// Returns the beginning of `text` (lines with their ends) that the notebook still gets.
  std::string take(std::string_view text);
  /// Whether something was held back; then take() returns nothing until the next begin().
  bool is_cut() const { return is_cut_; }
  /// Says for people, at the cut and at the end of the cell, what is missing, and how to see all; the last lines.
  std::string cut_text() const;
  std::string end_text() const;

 private:
  void open_file();
  void write(std::string_view text);

  bool is_cut_ = false;
  int64_t lines_ = 0, held_lines_ = 0;
  size_t bytes_ = 0, held_bytes_ = 0;
  std::string shown_;  // until the cut
  std::deque<std::string> last_;
  int fd_ = -1;
  bool is_complete_ = true;  // the file has everything
  std::deque<Descriptor> files_;
};

}  // namespace lockstep::shell::jupyter
