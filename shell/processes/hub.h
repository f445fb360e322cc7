// The session's side of the wire to the ranks. Those of this machine come to its socket (rank_sockets.h). Those of a
// host whose relay collects their messages come by way of that: a message to many of them goes there once.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/rank_set.h"
#include "protocol/worker_messages.h"
#include "shell/processes/rank_sockets.h"

namespace lockstep::shell {

struct FromWorker {
  int rank = -1;  // -1: from something that is no rank of this session; nothing else is set then
  protocol::WorkerMessage message;
  std::vector<zmq::message_t> frames;
};

/// A message that ranks of one host have sent, alike but for the time that a cell took.
struct Carried {
  RankSet ranks;
  std::map<int, double> run_ms;  // of Done
  std::string header;
  std::vector<std::string> frames;
};

/// A rank sent what is no message of this version.
struct BadMessage : ChannelError {
  BadMessage(int rank, const std::string& what) : ChannelError(what), rank(rank) {}
  int rank;
};

class Hub {
 public:
  /// Takes a message to ranks of another host there. What is urgent may overtake objects that are under way.
  using Carry = std::function<void(const RankSet& ranks, const std::string& header,
                                   const std::vector<zmq::message_t>& frames, bool is_urgent)>;

  /// Listens on `endpoint`. Throws StartError.
  explicit Hub(const std::string& endpoint);

  /// Makes an identity of `rank` for the process that starts next. What the one before it had sent is ignored.
  const std::string& expect(int rank);
  /// Messages to these ranks go by `carry` from now on, and theirs come by deliver().
  void carry(const RankSet& ranks, Carry carry);
  /// `lives`: how often ranks had been started again when they sent that; those that are missing here have not been.
  void deliver(Carried message, const std::map<int, int>& lives);
  /// The connections of these ranks there have ended. All that they had sent has been delivered.
  void deliver_ends(const RankSet& ranks, const std::map<int, int>& lives);
  /// Readable while receive() has what was delivered, or connections there have ended.
  int delivered() const { return delivered_.get(); }

  /// Sends to ranks that are connected; to others nothing is sent (their death is noticed elsewhere).
  void send(const RankSet& ranks, const protocol::HubMessage& message, std::vector<zmq::message_t> frames = {});
  void send(int rank, const protocol::HubMessage& message);

  /// Returns the next message, or nothing when none is waiting. Throws BadMessage.
  std::optional<FromWorker> receive();
  /// Returns how many messages have arrived; receive() returns these first. Ranks may send faster than their messages
  /// are handled, so waiting until none is left may never end. This ends: a rank whose messages are not handled gets no
  /// credit.
  size_t arrived();

  /// These do what RankSockets' do, for ranks of all hosts.
  void take_connection_events() { sockets_.take_connection_events(); }
  RankSet ended() const { return sockets_.ended() | remote_ended_; }
  bool connection_ended(int rank) const { return sockets_.ended().contains(rank) || remote_ended_.contains(rank); }
  bool was_connected(int rank) const;

  zmq::socket_ref socket() { return sockets_.socket(); }
  zmq::socket_ref monitor() { return sockets_.monitor(); }

 private:
  /// A message that has been taken and not returned yet, to all of its ranks.
  struct Arrived {
    RankSet ranks;
    size_t next = 0;  // index of the rank for which it is returned next
    std::map<int, double> run_ms;
    std::vector<zmq::message_t> frames;
    std::optional<protocol::WorkerMessage> message;  // once it is decoded
  };
  /// A rank behind a relay.
  struct Remote {
    size_t way = 0;  // index in ways_
    int life = 0;
    bool has_come = false;
  };
  FromWorker next_of(Arrived& arrived);

  RankSockets sockets_;
  std::map<int, std::string> identities_;
  std::vector<Carry> ways_;
  std::map<int, Remote> remote_;  // by rank
  RankSet remote_ended_;
  std::deque<Arrived> arrived_;
  Descriptor delivered_;
};

}  // namespace lockstep::shell
