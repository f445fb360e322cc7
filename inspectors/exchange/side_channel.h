// The connections over which the inspectors of all ranks exchange values, apart from every process group of the user.
// Values go through the store, where a rank that does not come costs the others a deadline and no connection. Tensors
// go over a Gloo group, which is made when it is first needed.
//
// Every wait ends at once when this rank is aborted (dist::abort, the user's interrupt), and when a rank that it waits
// for can't come any more: the rank's process has died, or the session reports that the rank has left the cell.
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

#include "collectives/rank_context.h"
#include "collectives/transport/backend_factory.h"
#include "collectives/watch/death_watch.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

using Bytes = std::vector<uint8_t>;

struct ExchangeResult {
  std::vector<Bytes> values;  // by rank index; empty where a rank is missing
  RankSet missing;  // the same set on every rank that came
  bool early = false;  // the missing ranks can't come any more, so nobody waited for them until the deadline
};

class SideChannel {
 public:
  /// The calling rank's. Local.
  static std::shared_ptr<SideChannel> of(dist::RankContext& context);

  /// Collective over `ranks`: hands each rank the values of all. When some have not come `deadline` after the first,
  /// the others agree on who is missing, and return that. A rank that comes later takes part in the next exchange.
  /// Throws dist::Aborted.
  ExchangeResult try_gather(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline);

  /// try_gather() among ranks that are known to have come. Throws dist::PeerLeft naming those that are gone.
  std::vector<Bytes> gather(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline);

  /// Over the Gloo group of `ranks`. Collective; contiguous CPU tensors. The transport throws its own errors, and the
  /// next call makes the group anew.
  void broadcast(const RankSet& ranks, at::Tensor tensor, int source_rank, std::chrono::milliseconds deadline);
  std::vector<at::Tensor> all_gather(const RankSet& ranks, at::Tensor tensor, std::chrono::milliseconds deadline);

 private:
  struct Group {
    std::shared_ptr<dist::BackendConnector> connector;
    c10::intrusive_ptr<c10d::Backend> backend;
  };
  struct RankGroup {  // ranks that exchange values with one another
    int64_t exchanges = 0;
    std::vector<std::string> to_delete;  // own keys that nobody reads any more once the next exchange is complete
    Group group;
  };

  explicit SideChannel(dist::RankContext& context);
  RankGroup& rank_group(const RankSet& ranks);
  c10d::Backend& group(const RankSet& ranks, std::chrono::milliseconds deadline);
  template <typename Call>
  void transfer(const RankSet& ranks, std::chrono::milliseconds deadline, Call&& call);

  /// From any thread, when something has happened for which a wait may have to end.
  void interrupt_waits();
  /// Between these two, an interrupt breaks the connection to the store, and with it the wait.
  void begin_waiting();
  bool end_waiting();  // whether there was an interrupt
  RankSet gone() const;  // who can't come any more
  void connect_to_store();
  dist::Store store();
  [[noreturn]] void throw_aborted(const std::string& reason) const;

  const int rank_;
  const bool loopback_;
  dist::RankContext& context_;
  int64_t generation_ = 0;
  std::map<RankSet, RankGroup> rank_groups_;

  mutable std::mutex mutex_;  // what follows
  std::shared_ptr<dist::StoreConnection> connection_;  // its own: a wait in it holds up nobody else
  std::shared_ptr<dist::StoreConnection> connecting_;  // while it is not connected yet
  bool waiting_ = false, interrupted_ = false;
  std::shared_ptr<dist::BackendConnector> transferring_;
  RankSet transferring_among_;
  RankSet dead_;
  std::unique_ptr<dist::DeathWatch> deaths_;  // last: its thread uses the rest
};

}  // namespace lockstep::inspect
