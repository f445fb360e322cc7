// Decides which start of the default group a rank takes part in. Ranks may initialise several times on one store: a
// program destroys its groups and makes new ones, an initialisation fails and is tried again, the process of a rank is
// replaced. So the starts are counted in the store, not in the process.
#pragma once
#include <cstdint>
#include <string>

#include "collectives/dist.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

/// The claim of one rank to its part in a start: the first start to which not all ranks have come yet, and in which the
/// rank has no claim, or one of a process that is gone.
///
///   StartClaim claim(store, rank, ranks);
///   everyone = exchange(store, claim.key(), rank, ranks, mine, timeout);   // claim.withdraw() where that fails
class StartClaim {
 public:
  /// Throws Error when another process has come as `rank`.
  StartClaim(const Store& store, int rank, const RankSet& ranks);
  ~StartClaim();
  StartClaim(const StartClaim&) = delete;
  StartClaim& operator=(const StartClaim&) = delete;

  /// Returns the key under which the ranks of this start exchange what they need to know: "start-0".
  const std::string& key() const { return key_; }
  /// The start has failed on this rank. While ranks are missing from the start, this rank may come to it again.
  void withdraw(const Store& store) noexcept;

 private:
  bool has_all(const Store& store, const std::string& key) const;

  const int rank_;
  const RankSet ranks_;
  const uint64_t instance_;  // distinguishes the starts of this process
  const std::string mine_;
  std::string key_;
};

}  // namespace lockstep::dist
