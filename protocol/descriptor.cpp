#include "protocol/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "protocol/error.h"

namespace lockstep {

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Descriptor::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw StartError(std::string("a pipe could not be made: ") + std::strerror(errno) + " (ulimit -n)");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace lockstep
