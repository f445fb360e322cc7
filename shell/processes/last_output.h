// Reads what a rank wrote before its death and could not send any more: who has started the rank holds the descriptors through which
// the worker's output goes (protocol/output_channel.h), and reads there what is left.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protocol/output_channel.h"

namespace lockstep::shell {

/// Holds what a rank has left of a stream.
struct LeftOutput {
  int64_t end = 0;  // so many bytes have gone through the log
  std::string log;  // the last of them
  std::string pipe;  // had not come to the log
  /// Returns what comes after the first `received` bytes.
  std::string after(int64_t received) const;
};

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
  const protocol::OutputChannels& channels() const { return channels_; }
  /// Called once the worker has them.
  void close_writing_ends();

  /// Returns what stdout and stderr, in this order, have left; of the log what comes after the first `received` bytes, or
  /// the last 2 MB. Called once, after the worker's process has ended. Does not wait for children of the worker that
  /// still write.
  std::array<LeftOutput, 2> take(const std::optional<std::array<int64_t, 2>>& received = std::nullopt);

 private:
  protocol::OutputChannels channels_;
};

}  // namespace lockstep::shell
