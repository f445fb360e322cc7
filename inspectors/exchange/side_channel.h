// The connections over which the inspectors of all ranks exchange values, separate from the user's process groups.
// Values go through the store, where a rank that does not take part costs the others a deadline and no connection.
// Tensors go over a Gloo group, which is made when it is first needed.
//
// Every wait ends at once when this rank is aborted (dist::abort, the user's interrupt), and when a rank that it waits
// for can't take part any more: its process has died, or the session reports that it has left the cell.
//
// Where the rank is recorded, so is what it gets here; where a rank is replayed alone, that takes the place of the others.
//
// One per rank (dist::RankContext), used by the rank's own thread. Other threads only interrupt its waits.
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "collectives/log/death_watch.h"
#include "collectives/rank_context.h"
#include "collectives/transport/backend_factory.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

using Bytes = std::vector<uint8_t>;

struct ExchangeResult {
  std::vector<Bytes> values;  // by rank index; empty where a rank is missing
  RankSet missing;  // the same set on every rank that took part
  bool early = false;  // the missing ranks can't take part any more, so the others did not wait until the deadline
};

class SideChannel {
 public:
  /// Returns the calling rank's. Local.
  static std::shared_ptr<SideChannel> of(dist::RankContext& context);

  /// Collective over `ranks`: each rank gets the values of all. If some ranks do not take part within `deadline`, the
  /// others agree on which are missing and return these. A rank that is late takes part in the next exchange if it
  /// `waits_when_late`, and otherwise returns the same missing ranks, itself among them. Throws dist::Aborted.
  ExchangeResult try_gather(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline,
                            bool waits_when_late = true);

  /// try_gather() among ranks that have taken part before. Throws dist::PeerLeft, which names those that are lost.
  std::vector<Bytes> gather(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline);

  /// Goes over the Gloo group of `ranks`. Collective; contiguous CPU tensors. The transport throws its own errors, and
  /// the next call makes the group anew.
  void broadcast(const RankSet& ranks, at::Tensor tensor, int source_rank, std::chrono::milliseconds deadline);
  std::vector<at::Tensor> all_gather(const RankSet& ranks, at::Tensor tensor, std::chrono::milliseconds deadline);

 private:
  ExchangeResult gather_now(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline,
                            bool waits_when_late);

  struct Group {
    std::shared_ptr<dist::BackendConnector> connector;
    c10::intrusive_ptr<c10d::Backend> backend;
  };
  struct RankGroup {  // ranks that exchange values with one another
    int64_t exchanges = 0;
    std::vector<std::string> to_delete;  // own keys that no rank reads after the next exchange is complete
    Group group;
  };

  explicit SideChannel(dist::RankContext& context);
  RankGroup& rank_group(const RankSet& ranks);
  c10d::Backend& group(const RankSet& ranks, std::chrono::milliseconds deadline);
  template <typename Call>
  void transfer(const RankSet& ranks, std::chrono::milliseconds deadline, Call&& call);

  /// Called from any thread, after an event that may end a wait.
  void interrupt_waits();
  /// Between these two, an interrupt breaks the connection to the store, and with it the wait.
  void begin_waiting();
  bool end_waiting();  // whether there was an interrupt
  RankSet gone() const;  // ranks that can't take part any more
  void connect_to_store();
  dist::Store store();
  [[noreturn]] void throw_aborted(const std::string& reason) const;

  const int rank_;
  const bool loopback_;
  dist::RankContext& context_;
  int64_t generation_ = 0;
  std::map<RankSet, RankGroup> rank_groups_;

  mutable std::mutex mutex_;  // what follows
  std::shared_ptr<dist::StoreConnection> connection_;  // not shared, so that its waits block nothing else
  std::shared_ptr<dist::StoreConnection> connecting_;  // while it is not connected yet
  bool waiting_ = false, interrupted_ = false;
  std::shared_ptr<dist::BackendConnector> transferring_;
  RankSet transferring_among_;
  RankSet dead_;
  std::unique_ptr<dist::DeathWatch> deaths_;  // last: its thread uses the rest
};

}  // namespace lockstep::inspect
