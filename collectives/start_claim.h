// Which start of the default group a rank takes part in. Ranks initialise more often than once on one store: a program ends its
// groups and makes new ones, an initialisation fails and is tried again, the process of a rank is replaced. So the store counts
// the starts, not the process.
#pragma once
#include <cstdint>
#include <string>

#include "collectives/dist.h"
#include "protocol/rank_set.h"

namespace lockstep::dist {

/// The place of one rank in the first start that is not over: one where not all ranks have come yet, and where this rank has
/// no place or its place is that of a process that is gone.
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

  /// Under which the ranks of this start exchange what they need to know: "start-0".
  const std::string& key() const { return key_; }
  /// The start has failed here. Where ranks are missing from it, this one may come to it again.
  void withdraw(const Store& store) noexcept;

 private:
  bool has_all(const Store& store, const std::string& key) const;

  const int rank_;
  const RankSet ranks_;
  const uint64_t instance_;  // tells starts of this process apart
  const std::string mine_;
  std::string key_;
};

}  // namespace lockstep::dist
