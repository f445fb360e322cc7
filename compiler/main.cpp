// lockstep-compiler: turns cells into shared objects. A child of lockstep, which talks to it over a socket.
#include <fcntl.h>

#include <cstdio>
#include <exception>

#include "compiler/options.h"
#include "compiler/supervisor.h"

int main(int argc, char** argv) {
  try {
    const auto options = lockstep::compiler::read_options(argc, argv);
    ::fcntl(options.channel_fd, F_SETFD, FD_CLOEXEC);
    return lockstep::compiler::supervise(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep-compiler: %s\n", error.what());
    return 2;
  }
}
