// dist:: throws these. Every text says what happened, in which operation and where, and what to do about it; the types
// tell a cause from a consequence.
#pragma once
#include <string>
#include <utility>

#include "protocol/error.h"
#include "protocol/finding.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

struct Error : lockstep::Error {
  using lockstep::Error::Error;
};

/// No rank could have meant this argument: an undefined tensor, a list of the wrong size, a root outside the group,
/// this rank not in the group. Nothing was sent; the group goes on.
struct ArgumentError : Error {
  using Error::Error;
};

/// This rank's groups were shut down by dist::abort(). A consequence: the reason says of what.
struct Aborted : Error {
  Aborted(const std::string& message, std::string reason) : Error(message), reason(std::move(reason)) {}
  std::string reason;
};

/// Other ranks left the collective that this one is in: they died, were aborted, or failed in it. A consequence.
struct PeerLeft : Error {
  PeerLeft(const std::string& message, RankSet ranks) : Error(message), ranks(std::move(ranks)) {}
  RankSet ranks;
};

/// The time limit of the group passed before every rank came.
struct TimedOut : Error {
  TimedOut(const std::string& message, RankSet missing) : Error(message), missing(std::move(missing)) {}
  RankSet missing;
};

/// Ranks called different operations at the same place of a group's sequence, or the same one with another dtype,
/// shape, root or reduce operation. Every rank that takes part throws it, the one that saw it before data moves.
struct CollectiveMismatch : Error {
  CollectiveMismatch(const std::string& message, Finding finding) : Error(message), finding(std::move(finding)) {}
  Finding finding;  // inspector "collectives"; the worker fills in cell and where
};

}  // namespace lockstep::dist
