// Cells from a pipe or a file: no prompt, no editing. A cell ends where its text is whole, or at a line `// %%`, after which cells go from
// marker to marker as in a session script.
#pragma once
#include <deque>
#include <string>

#include "shell/line_reader.h"

namespace lockstep::shell {

class PlainLineReader : public LineReader {
 public:
  PlainLineReader(int fd, LineReaderServices services) : fd_(fd), services_(std::move(services)) {}

  Input read(const std::string& prompt) override;
  void hide() override {}
  void show() override {}
  void remember(const std::string&) override {}
  void interrupt() noexcept override {}

 private:
  bool next_line(std::string& line);
  bool has_line_at_hand();
  bool fill();

  int fd_;
  LineReaderServices services_;
  std::string buffer_;
  bool at_end_ = false;
  bool in_script_ = false;  // a marker was seen
  bool skipping_ = false;  // the current cell is markdown
};

/// Does this line go on with the statement before it: `else`, `{`, an operator?
bool continues_statement(std::string_view line);

}  // namespace lockstep::shell
