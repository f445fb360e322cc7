// ddp:: throws these. Each text names what happened, on which rank, and what to change.
#pragma once
#include "protocol/error.h"

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
