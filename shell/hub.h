// The session's side of the wire to the workers: one ROUTER socket, on ipc in the session's private directory.
//
// A message to several ranks is encoded once, and its frames are shared by all (zmq_msg_copy counts references). Queues
// are not limited here: what workers may send is limited by the credit that they have been given.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "protocol/rank_set.h"
#include "protocol/worker_messages.h"

namespace lockstep::shell {

struct FromWorker {
  int rank = -1;
  protocol::WorkerMessage message;
  std::vector<zmq::message_t> frames;
};

/// Bytes that messages can share; `bytes` is moved, not copied.
zmq::message_t shared_frame(std::string bytes);

class Hub {
 public:
  /// Listens on `endpoint`. Throws StartError.
  explicit Hub(const std::string& endpoint);
  ~Hub();

  /// Sends to ranks that are connected; to others nothing is sent (their death is noticed elsewhere).
  void send(const RankSet& ranks, const protocol::HubMessage& message, std::vector<zmq::message_t> frames = {});
  void send(int rank, const protocol::HubMessage& message);

  /// The next message, or nothing when none is waiting. Throws ChannelError for what is no message of this version,
  /// with the sender's name.
  std::optional<FromWorker> receive();

  /// Takes in connections that ended; true when `rank` was connected and is not any more: all that it sent has arrived.
  bool connection_ended(int rank);
  bool was_connected(int rank) const { return sources_.contains(rank); }
  /// Before a new process takes the place of `rank`.
  void forget(int rank);

  zmq::socket_ref socket() { return router_; }
  zmq::socket_ref monitor() { return monitor_; }

 private:
  void note_source(int rank, const zmq::message_t& frame);

  zmq::context_t context_{1};
  zmq::socket_t router_;
  zmq::socket_t monitor_;
  std::map<int, int> sources_;  // rank → descriptor of its connection
  std::set<int> ended_;  // descriptors whose connection is over
};

}  // namespace lockstep::shell
