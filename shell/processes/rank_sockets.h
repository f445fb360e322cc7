// One ROUTER socket to which the ranks of a session come, on ipc in a private directory. It knows a rank by an identity
// that nothing but its process is given. What connects under another one is no rank, and a second connection under the
// same one is refused by ZeroMQ: neither can speak for a rank.
//
// Messages to several ranks share their frames (zmq_msg_copy counts references). Queues are not limited here: what
// ranks may send is limited by the credit that they have been given.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "protocol/rank_set.h"

namespace lockstep::shell {

/// Makes bytes that messages can share; `bytes` is moved, not copied.
zmq::message_t shared_frame(std::string bytes);

class RankSockets {
 public:
  /// Listens on `endpoint`. Throws StartError.
  explicit RankSockets(const std::string& endpoint);
  ~RankSockets();
  RankSockets(const RankSockets&) = delete;
  RankSockets& operator=(const RankSockets&) = delete;

  /// The process of `rank` that starts next has this identity. What the one before it had sent is ignored.
  void expect(int rank, const std::string& identity);

  /// Sends to those of `ranks` that are connected. Throws ChannelError.
  void send(const RankSet& ranks, std::vector<zmq::message_t>& frames);

  struct Received {
    int rank = -1;  // -1: from something that is no rank
    std::vector<zmq::message_t> frames;  // the first is the header; none: an empty message
  };
  /// Returns the next message, or nothing when none is waiting.
  std::optional<Received> receive();

  /// Reads the events of all connections from monitor(). receive() does so, too: who waits for the monitor looks at
  /// ended() after either.
  void take_connection_events();
  /// Ranks that were connected and are not any more, by the events read so far: all that they sent has arrived.
  const RankSet& ended() const { return gone_; }
  bool was_connected(int rank) const { return connections_.contains(rank); }

  zmq::socket_ref socket() { return router_; }
  zmq::socket_ref monitor() { return monitor_; }

 private:
  void note_connection(int rank, const zmq::message_t& frame);

  zmq::context_t context_{1};
  zmq::socket_t router_;
  zmq::socket_t monitor_;
  std::map<int, std::string> identities_;
  std::map<std::string, int, std::less<>> ranks_;  // by identity
  // Descriptors of the ranks' connections, known since their first messages. Later connections use them again.
  std::map<int, int> connections_;
  std::set<int> ended_;  // descriptors whose last connection has ended
  RankSet gone_;
};

}  // namespace lockstep::shell
