// Reads cells as plain lines, without editing: from a pipe or a file, and from a terminal that can't move its cursor
// (TERM=dumb), which gets a prompt.
//
// From a pipe a cell ends where its text is complete, or at a line `// %%`, after which cells go from marker to marker
// as in a session script. At a prompt an empty line ends it, too, and markers are comments.
#pragma once
#include <string>
#include <utility>

#include "protocol/descriptor.h"
#include "shell/terminal/line_reader.h"

namespace lockstep::shell {

class PlainLineReader : public LineReader {
 public:
  /// `write_prompt` shows prompts; none for a pipe.
  PlainLineReader(int fd, LineReaderServices services, std::function<void(const std::string&)> write_prompt = nullptr);

  Input read(const std::string& prompt) override;
  void set_prompt(const std::string& prompt) override { prompt_ = prompt; }
  void hide() override;
  void show() override;
  void remember(const std::string&) override {}
  void type_ahead(const std::string& bytes) override { buffer_ += bytes; }
  void end_ahead() override { at_end_ = true; }
  std::string take_ahead() override { return std::exchange(buffer_, ""); }
  void interrupt() noexcept override;

 private:
  bool next_line(std::string& line);
  bool has_line_at_hand();
  bool fill();
  bool was_interrupted();

  int fd_;
  LineReaderServices services_;
  std::function<void(const std::string&)> write_prompt_;
  Descriptor wake_;  // a signal handler makes it readable
  Descriptor wait_;  // epoll over fd_ and wake_; none for a file, which is always readable
  std::string prompt_;
  std::string buffer_;
  size_t searched_ = 0;  // bytes of buffer_ that hold no line end
  bool reading_ = false;
  bool at_end_ = false;
  bool interrupted_ = false;
  bool in_script_ = false;  // a marker was seen
  bool skipping_ = false;  // the current cell is markdown
};

/// Whether this line goes on with the statement before it: `else`, `{`, an operator.
bool continues_statement(std::string_view line);

}  // namespace lockstep::shell
