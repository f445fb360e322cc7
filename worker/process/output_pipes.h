// Makes descriptors 1 and 2 of the process pipes that the I/O thread reads: everything that is written to them (by
// printf, std::cout, write, children, libraries) is captured at once. Bytes that have been read stay in the channel's
// log until the hub has confirmed them, so that the death of this process loses none (protocol/output_channel.h).
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "protocol/output_channel.h"

namespace lockstep::worker {

/// Not synchronised: Outbox, which puts messages between the bytes, calls it under its lock. read() and confirm() are
/// called on the I/O thread only.
class OutputPipes {
 public:
  using Mark = std::array<int64_t, 2>;  // counts of bytes of stdout and stderr

  /// Takes over descriptors 0 (from /dev/null), 1 and 2, and makes stdio unbuffered. Closes the writing ends of
  /// `channels`, which it owns from here on. Throws std::system_error.
  explicit OutputPipes(const protocol::OutputChannels& channels);
  OutputPipes(const OutputPipes&) = delete;

  int fd(Stream stream) const { return channels_[protocol::index_of(stream)].read; }
  /// Returns the bytes written so far: those read and those that wait in the pipes.
  Mark written() const;
  /// Returns the bytes of a stream handed out by read() so far.
  int64_t bytes_read(Stream stream) const { return bytes_read_[protocol::index_of(stream)]; }
  /// Appends at most `limit` bytes to `bytes`; never waits. Returns how many.
  size_t read(Stream stream, size_t limit, std::string& bytes);
  /// Notes that the hub has the next `count` bytes, counted over both streams in the order of the reads.
  void confirm(int64_t count);

 private:
  ssize_t move_to_log(Stream stream, size_t limit, std::string& bytes);

  protocol::OutputChannels channels_;
  std::array<int64_t, 2> bytes_read_ = {0, 0}, confirmed_ = {0, 0}, cut_ = {0, 0};
  std::deque<std::pair<Stream, int64_t>> unconfirmed_;  // reads in order, and their bytes
};

}  // namespace lockstep::worker
