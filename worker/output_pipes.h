// Descriptors 1 and 2 of the process as pipes that the I/O thread reads: whatever writes to them (printf, std::cout,
// write, children, libraries) is captured as it is written.
#pragma once
#include <array>
#include <cstdint>
#include <string>

namespace lockstep::worker {

enum Stream : int { kStdout = 0, kStderr = 1 };
inline constexpr std::array<const char*, 2> kStreamNames = {"stdout", "stderr"};

/// Not synchronised: Outbox, which puts messages between the bytes, calls it under its lock.
class OutputPipes {
 public:
  using Mark = std::array<int64_t, 2>;  // counts of bytes of stdout and stderr

  /// Takes over descriptors 0 (from /dev/null), 1 and 2, and makes stdio unbuffered. Throws std::system_error.
  OutputPipes();
  OutputPipes(const OutputPipes&) = delete;

  int fd(Stream stream) const { return read_[stream]; }
  /// Bytes written so far: those read and those that wait in the pipes.
  Mark written() const;
  /// Bytes of a stream handed out by read() so far.
  int64_t bytes_read(Stream stream) const { return bytes_read_[stream]; }
  /// Appends at most `limit` bytes to `bytes`; never waits. Returns how many.
  size_t read(Stream stream, size_t limit, std::string& bytes);

 private:
  std::array<int, 2> read_;
  std::array<int64_t, 2> bytes_read_ = {0, 0};
};

/// Hands on what stdio and iostreams of this process hold back.
void flush_standard_streams();

}  // namespace lockstep::worker
