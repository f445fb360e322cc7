// The stream that people read. What can't be written is told once on the standard error, and kept for the exit code: a full disk is no
// success. The program goes on; its cells may have other ends than what they print.
#pragma once
#include <string_view>

namespace lockstep::shell {

class TextOutput {
 public:
  explicit TextOutput(int fd) : fd_(fd) {}

  void write(std::string_view text);
  /// Something could not be written, and not because nobody reads any more (EPIPE).
  bool lost() const { return lost_; }

 private:
  int fd_;
  bool lost_ = false;
};

}  // namespace lockstep::shell
