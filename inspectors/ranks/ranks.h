// ranks checks that the ranks agree on their setup. It finds ranks that are doubled or missing, a device that two ranks
// use, environment variables, settings, and versions of LibTorch and of the program that differ between ranks.
//
//   auto report = inspect::ranks();                                    // on every rank of a group
//   auto report = inspect::ranks(store, rank, world_size);             // without a group, if it can't be made
#pragma once
#include <iosfwd>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "inspectors/exchange/options.h"
#include "inspectors/exchange/report.h"
#include "inspectors/ranks/facts.h"

namespace lockstep::inspect {

struct RanksOptions : InspectOptionsOf<RanksOptions> {};

struct RanksReport : Report {
  std::vector<RankIdentity> identities;  // of the processes that called, by rank
};

/// Prints a row for each rank, then the findings.
std::ostream& operator<<(std::ostream& out, const RanksReport& report);

/// Collective over the options' ranks, over the inspectors' own connections. Throws dist::ArgumentError for ranks that
/// do not exist.
RanksReport ranks(const RanksOptions& options = {});

/// Does the same for processes that share only a store: finds processes with the same rank, and ranks that do not call.
/// Every process calls it once, with a store that was not used for it before. Of the options it uses deadline and
/// publish.
RanksReport ranks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                  const RanksOptions& options = {});

}  // namespace lockstep::inspect
