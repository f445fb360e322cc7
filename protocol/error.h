// The exceptions that carry what happened and the mend. Programs turn them into one line and an exit code.
#pragma once
#include <stdexcept>
#include <string>

namespace lockstep {

/// What the user typed is wrong (a rank set, an option, a path). Nothing has run. `run` exits with 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The session could not start, or can't go on: a program or a library is missing or of another version. Exit code 3.
struct StartError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The other end of a channel is gone or sent what no version of the protocol has.
struct ChannelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep
