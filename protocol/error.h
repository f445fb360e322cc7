// The exceptions of Lockstep: all derive from lockstep::Error. A text says what happened, where, and how to fix it;
// programs turn it into one line and an exit code. What dist:: throws is in protocol/dist_error.h.
#pragma once
#include <stdexcept>
#include <string>

namespace lockstep {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What the user typed is wrong (a rank set, an option, a path). Nothing has run. `run` exits with 2.
struct UsageError : Error {
  using Error::Error;
};

/// The session could not start, or can't go on: a program or a library is missing or of another version. Exit code 3.
struct StartError : Error {
  using Error::Error;
};

/// The other end of a channel is gone or sent what no version of the protocol has.
struct ChannelError : Error {
  using Error::Error;
};

}  // namespace lockstep

/// ddp:: throws these. A text names the rank and what to change.
namespace lockstep::ddp {

/// A step or a join can't go on: gradients are missing, ranks were reconnected, or a reduction failed.
struct Error : lockstep::Error {
  using lockstep::Error::Error;
};

/// An argument, an option or a module does not fit. The constructor of a wrapper throws it on every rank alike. The
/// call has no effect.
struct ArgumentError : Error {
  using Error::Error;
};

/// A call came at the wrong time: a second communication hook, a backward that no forward announced, a forward out of
/// turn in join().
struct StateError : Error {
  using Error::Error;
};

}  // namespace lockstep::ddp
