// Keeps what a child writes to its own output and error streams (not what its cells print) for the message about its
// death.
#pragma once
#include <string>

#include "protocol/descriptor.h"

namespace lockstep::shell {

class OutputTail {
 public:
  OutputTail();
  int write_end() const { return pipe_.write.get(); }
  void close_write_end() { pipe_.write.reset(); }  // once the child has it
  int fd() const { return pipe_.read.get(); }

  /// Takes what is there, without waiting. Returns false when nobody can write any more.
  bool take();
  /// Returns the last lines, at most `count`, indented by two blanks; empty when there are none.
  std::string last_lines(int count = 8);

 private:
  Pipe pipe_;
  std::string text_;
};

}  // namespace lockstep::shell
