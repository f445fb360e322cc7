// A stream that people or programs read: the terminal, a pipe, a file of --json. What can't be written is reported once
// on the standard error, and kept for the exit code: a full disk, a reader that is gone. The program decides whether it
// goes on.
//
// A reader that is slow makes write() wait. interrupt() ends that: a display drops what it has not shown then (a
// terminal that is behind by minutes is no use to somebody who has pressed Ctrl-C), any other reader gets a moment to
// take the rest.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "protocol/descriptor.h"

namespace lockstep::shell {

/// Writes "lockstep: TEXT" as a line to the standard error. What can't be written is lost: nobody may read it any more,
/// and fmt::print() would throw.
void write_message(const std::string& text);

class TextOutput {
 public:
  /// Messages call it `name`. write() calls `on_cut` after it has dropped what a display did not take, with how many
  /// bytes.
  explicit TextOutput(int fd, std::string name = "the output", std::function<void(size_t dropped)> on_cut = nullptr);
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;

  /// `can_be_cut` marks output of ranks. A few lines about them are written after an interrupt, too.
  void write(std::string_view text, bool can_be_cut = false);
  /// Whether something could not be written.
  bool lost() const { return lost_; }
  /// Whether nobody reads any more.
  bool closed() const { return closed_; }

  /// Makes write() no longer wait for a slow reader, until resume(). From a signal handler.
  void interrupt() noexcept;
  void resume();

 private:
  enum class Wait { writable, interrupted, stalled };
  Wait wait(bool can_be_cut);
  bool is_behind() const;
  void lose(const std::string& why);
  void cut(size_t dropped);

  int fd_;
  std::string name_;
  std::function<void(size_t)> on_cut_;
  Descriptor own_;  // of a terminal: opened for ourselves, since the user's shell shares fd_ and its flags
  Descriptor wake_;  // readable once interrupted
  size_t piece_ = 0;  // that can be written without waiting once it is writable; 0: there is nothing to wait for
  bool is_display_ = false;
  std::chrono::steady_clock::time_point last_wait_;  // for a reader
  bool lost_ = false, closed_ = false;
  std::atomic<bool> interrupted_{false};
};

}  // namespace lockstep::shell
