// The session's side of the wire to the workers is one ROUTER socket, on ipc in the session's private directory.
//
// A message to several ranks is encoded once, and its frames are shared by all (zmq_msg_copy counts references). Queues
// are not limited here: what workers may send is limited by the credit that they have been given.
//
// The hub knows a rank by an identity that nothing but its worker is given. What connects under another one is ignored,
// and a second connection under the same one is refused by ZeroMQ: neither can speak for a rank.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "protocol/error.h"
#include "protocol/rank_set.h"
#include "protocol/worker_messages.h"

namespace lockstep::shell {

struct FromWorker {
  int rank = -1;  // -1: from something that is no rank of this session; nothing else is set then
  protocol::WorkerMessage message;
  std::vector<zmq::message_t> frames;
};

/// A rank sent what is no message of this version.
struct BadMessage : ChannelError {
  BadMessage(int rank, const std::string& what) : ChannelError(what), rank(rank) {}
  int rank;
};

/// Makes bytes that messages can share; `bytes` is moved, not copied.
zmq::message_t shared_frame(std::string bytes);

class Hub {
 public:
  /// Listens on `endpoint`. Throws StartError.
  explicit Hub(const std::string& endpoint);
  ~Hub();

  /// Makes an identity of `rank` for the process that starts next. What the one before it had sent is ignored.
  const std::string& expect(int rank);

  /// Sends to ranks that are connected; to others nothing is sent (their death is noticed elsewhere).
  void send(const RankSet& ranks, const protocol::HubMessage& message, std::vector<zmq::message_t> frames = {});
  void send(int rank, const protocol::HubMessage& message);

  /// Returns the next message, or nothing when none is waiting. Throws BadMessage.
  std::optional<FromWorker> receive();
  /// Returns how many messages have arrived; receive() returns these first. Ranks may send faster than their messages
  /// are handled, so waiting until none is left may never end. This ends: a rank whose messages are not handled gets no
  /// credit.
  size_t arrived();

  /// Reads the events of all ranks' connections from monitor(). receive() does so, too: a group that waits for the
  /// monitor asks connection_ended() of every rank after either.
  void take_connection_events();
  /// Whether `rank` was connected and is not any more, by the events read so far: all that it sent has arrived.
  bool connection_ended(int rank) const;
  bool was_connected(int rank) const { return connections_.contains(rank); }

  zmq::socket_ref socket() { return router_; }
  zmq::socket_ref monitor() { return monitor_; }

 private:
  /// Is the connection of a rank, known since its first message. Descriptors are used again by later connections.
  struct Connection {
    int descriptor = -1;
    bool ended = false;
  };
  void note_connection(int rank, const zmq::message_t& frame);
  /// Takes the frames of the next message out of the socket. Returns false when none is waiting.
  bool read_frames(std::vector<zmq::message_t>& frames);

  zmq::context_t context_{1};
  zmq::socket_t router_;
  zmq::socket_t monitor_;
  std::deque<std::vector<zmq::message_t>> arrived_;  // messages taken out of the socket and not returned yet
  std::map<int, std::string> identities_;
  std::map<std::string, int, std::less<>> ranks_;  // by identity
  std::map<int, Connection> connections_;  // by rank
  std::set<int> ended_;  // descriptors whose last connection has ended
};

}  // namespace lockstep::shell
