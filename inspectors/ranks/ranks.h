// ranks: do the ranks agree on who they are? Numbers that are doubled or missing, a device that two ranks use,
// environment variables that disagree, other versions of LibTorch or of the program, settings that are not the same
// everywhere.
//
//   auto report = inspect::ranks();                                    // on every rank of a group
//   auto report = inspect::ranks(store, rank, world_size);             // before there is one, where none comes about
#pragma once
#include <iosfwd>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "inspectors/exchange/options.h"
#include "inspectors/exchange/report.h"
#include "inspectors/ranks/facts.h"
#include "inspectors/ranks/findings.h"

namespace lockstep::inspect {

struct RanksOptions : InspectOptionsOf<RanksOptions> {};

struct RanksReport : Report {
  std::vector<RankIdentity> identities;  // of all that came, by rank
};

/// A row for each rank, then what was found.
std::ostream& operator<<(std::ostream& out, const RanksReport& report);

/// Collective over the options' ranks, over the inspectors' own connections. Throws dist::ArgumentError for ranks that
/// are not there.
RanksReport ranks(const RanksOptions& options = {});

/// The same for processes that share nothing but a store: it finds two processes that have the same rank, and ranks
/// that do not come. Every process calls it once, for a store that has not been used for it before. Of the options it
/// takes deadline and publish.
RanksReport ranks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                  const RanksOptions& options = {});

}  // namespace lockstep::inspect
