// ranks: do the ranks agree on who they are? Numbers that are doubled or missing, a device that two ranks use, environment
// variables that disagree, other versions of LibTorch or of the program, settings that are not the same everywhere.
//
//   auto report = inspect::ranks();                                    // on every rank of a group
//   auto report = inspect::ranks(store, rank, world_size);             // before there is one, where none comes about
#pragma once
#include <torch/types.h>

#include <chrono>
#include <iosfwd>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "inspectors/exchange/report.h"
#include "inspectors/ranks/facts.h"

namespace lockstep::inspect {

struct RanksOptions {
  /// The ranks that compare, each of which must call. Unset: all that are alive.
  TORCH_ARG(std::optional<RankSet>, ranks) = std::nullopt;
  /// How long to wait for ranks that do not call.
  TORCH_ARG(std::chrono::milliseconds, deadline) = std::chrono::seconds(10);
  /// Whether findings go to the sink (the session), too.
  TORCH_ARG(bool, publish) = true;
};

struct RanksReport : Report {
  std::vector<RankIdentity> identities;  // of all that came, by rank
};

/// A row for each rank, then what was found.
std::ostream& operator<<(std::ostream& out, const RanksReport& report);

/// Collective over the options' ranks, over connections of its own.
RanksReport ranks(const RanksOptions& options = {});

/// The same for processes that share nothing but a store: it tells two processes that say the same rank, and ranks that do not
/// come. Every process calls it once, for a store that has not been used for it before.
RanksReport ranks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                  const RanksOptions& options = {});

/// What is wrong with these, where `expected` should have come. Local; without an `ok`.
std::vector<Finding> compare_identities(const std::vector<RankIdentity>& identities, const RankSet& expected);

}  // namespace lockstep::inspect
