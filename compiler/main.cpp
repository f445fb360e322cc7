// lockstep-compiler compiles cells to shared objects. It is a child of lockstep, connected to it by a socket.
// `lockstep-compiler --prepare` builds the precompiled header ahead, for set-up and tests; `--version` describes it.
#include <fcntl.h>

#include <cstdio>
#include <exception>

#include "compiler/description.h"
#include "compiler/process/options.h"
#include "compiler/state/header_cache.h"
#include "compiler/supervisor.h"

int main(int argc, char** argv) {
  try {
    const auto options = lockstep::compiler::read_options(argc, argv);
    if (options.version) {
      std::printf("%s\n", lockstep::compiler::describe_program(options).c_str());
      return 0;
    }
    if (options.prepare) {
      const auto header =
          lockstep::compiler::provide_header(options, [](const lockstep::protocol::CompilerProgress& progress) {
            if (!progress.message.empty()) std::fprintf(stderr, "%s\n", progress.message.c_str());
          });
      std::printf("%s\n", header.prelude.c_str());
      return 0;
    }
    ::fcntl(options.channel_fd, F_SETFD, FD_CLOEXEC);
    return lockstep::compiler::supervise(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep-compiler: %s\n", error.what());
    return 2;
  }
}
