// How the inspectors of all ranks talk, apart from every group that users have: they meet in the store, where a rank that
// does not come costs the others a deadline and no connection, and move data over a Gloo group of their own, which is made
// when it is first needed.
//
// Every wait ends at once when this rank is aborted (dist::abort, the user's interrupt) and when a rank that is waited for can't
// come any more: its process has died, or the session says that it has left the cell.
//
// One per rank (dist::RankContext); used by the rank's own thread. Others only disturb it.
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

struct Meeting {
  std::vector<Bytes> values;  // by place among the ranks; empty where somebody is missing
  RankSet missing;  // the same set on every rank that came
  bool early = false;  // those missing were not waited for until the deadline: they can't come any more
};

class Channel {
 public:
  /// The calling rank's. Local.
  static std::shared_ptr<Channel> of(dist::RankContext& context);

  /// Collective over `ranks`: hands each the values of all. When some have not come `deadline` after the first, the others
  /// agree on who is missing, and that is the result; who comes later takes part in the next meeting. Throws dist::Aborted.
  Meeting meet(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline);

  /// meet() among ranks that are all known to be here. Throws dist::PeerLeft naming those that are gone.
  std::vector<Bytes> exchange(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline);

  /// Over the Gloo group of `ranks`. Collective; contiguous CPU tensors. What goes wrong is thrown by the transport, and the
  /// group is made anew next time.
  void broadcast(const RankSet& ranks, at::Tensor tensor, int source_rank, std::chrono::milliseconds deadline);
  std::vector<at::Tensor> all_gather(const RankSet& ranks, at::Tensor tensor, std::chrono::milliseconds deadline);

 private:
  struct Group {
    std::shared_ptr<dist::BackendConnector> connector;
    c10::intrusive_ptr<c10d::Backend> backend;
  };
  struct Circle {  // of ranks that meet
    int64_t meetings = 0;
    std::vector<std::string> to_delete;  // own keys that nobody reads any more once the next meeting is complete
    Group group;
  };

  explicit Channel(dist::RankContext& context);
  Circle& circle(const RankSet& ranks);
  c10d::Backend& group(const RankSet& ranks, std::chrono::milliseconds deadline);
  template <typename Call>
  void transfer(const RankSet& ranks, std::chrono::milliseconds deadline, Call&& call);

  /// From any thread: something happened that a wait may have to end for.
  void disturb();
  /// Between these two, a disturbance breaks the connection to the store, and with it the wait.
  void begin_waiting();
  bool end_waiting();  // whether there was one
  RankSet gone() const;  // who can't come any more
  void connect_to_store();
  dist::Store store();
  [[noreturn]] void throw_aborted(const std::string& reason) const;

  const int rank_;
  const bool loopback_;
  dist::RankContext& context_;
  int64_t generation_ = 0;
  std::map<RankSet, Circle> circles_;

  mutable std::mutex mutex_;  // what follows
  std::shared_ptr<dist::StoreConnection> connection_;  // its own: a wait in it holds up nobody else
  std::shared_ptr<dist::StoreConnection> connecting_;  // while it is not connected yet
  bool waiting_ = false, disturbed_ = false;
  std::shared_ptr<dist::BackendConnector> transferring_;
  RankSet transferring_among_;
  RankSet dead_;
  std::unique_ptr<dist::DeathWatch> deaths_;  // last: its thread uses the rest
};

}  // namespace lockstep::inspect
