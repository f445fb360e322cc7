// Reads what a rank wrote before its death and could not send any more: the shell holds the descriptors through which
// the worker's output goes (protocol/output_channel.h), and reads there what is left.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "protocol/output_channel.h"

namespace lockstep::shell {

class LastOutput {
 public:
  /// Throws StartError: no descriptors, no memory.
  LastOutput();
  ~LastOutput() { protocol::close_output_channels(channels_); }
  LastOutput(const LastOutput&) = delete;
  LastOutput& operator=(const LastOutput&) = delete;

  /// Returns the value of LOCKSTEP_OUTPUT_FDS for the worker, and the descriptors that it inherits.
  std::string environment() const { return protocol::output_channels_text(channels_); }
  std::vector<int> descriptors() const;
  /// Called once the worker has them.
  void close_writing_ends();

  /// Notes that bytes of `stream` have arrived in a message.
  void received(Stream stream, size_t bytes);

  /// Returns what stdout and stderr, in this order, have written and not received. Called once, after the worker's
  /// process has ended and its messages have been received. Does not wait for children of the worker that still write.
  std::array<std::string, 2> take();

 private:
  protocol::OutputChannels channels_;
  std::array<int64_t, 2> received_ = {0, 0};
};

}  // namespace lockstep::shell
