// Descriptors of files, pipes and terminals that are closed with their owner.
#pragma once
#include <utility>

namespace lockstep {

/// A descriptor that is closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

/// A pipe, both ends close-on-exec. Throws StartError.
struct Pipe {
  Descriptor read, write;
};
Pipe make_pipe();

}  // namespace lockstep
