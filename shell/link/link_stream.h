// One end of a stream of bytes in both directions that outlives the connections by which it goes: each byte arrives once and
// in order, or the stream ends. Here it is a descriptor, whose other end has somebody who knows nothing of connections.
//
// What the other end has not acknowledged is kept, at most a window; then nothing more is read from the descriptor, so that
// the writer waits.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "protocol/descriptor.h"
#include "shell/link/link_messages.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell {

class LinkStream {
 public:
  /// `send` takes what is for the other end while there is a connection; false: that has ended.
  LinkStream(EventLoop& loop, Descriptor local, const LinkLimits& limits, std::function<bool(LinkMessage)> send);
  ~LinkStream();
  LinkStream(const LinkStream&) = delete;
  LinkStream& operator=(const LinkStream&) = delete;

  /// Whether an end that has received so many bytes can go on with this one.
  bool can_resume(uint64_t received) const { return acked_ <= received && received <= next_; }
  /// There is a connection, whose other end has received so many, as can_resume() has allowed.
  void connect(uint64_t received);
  void disconnect() { is_connected_ = false; }
  bool is_connected() const { return is_connected_; }
  /// Returns how many bytes have been written to the descriptor.
  uint64_t received() const { return delivered_; }

  /// Takes what the other end has sent on the connection. What it has sent before is left out. Throws ChannelError for
  /// what no such end sends, after which the stream can't go on.
  void take(LinkMessage message);
  void ping() { say(LinkKind::ping); }

  /// What has been written to the descriptor by now is the last.
  void end_input();
  /// The other end has all that was written, and knows of the end.
  bool has_sent_all() const { return has_ended_ && acked_ == next_; }
  /// What the other end has sent has been written, with its end.
  bool has_delivered_all() const { return end_is_delivered_; }
  /// Both directions have ended.
  bool is_over() const { return !local_ || (has_sent_all() && has_delivered_all()); }
  /// Closes the descriptor, whatever is under way.
  void give_up();

 private:
  struct Piece {
    uint64_t offset = 0, size = 0;  // an end counts as 1
    LinkKind kind = LinkKind::data;
    zmq::message_t bytes;  // shared with the message that carries it
  };
  void read();
  void add(LinkKind kind, std::string bytes);
  bool send(Piece& piece);
  void say(LinkKind kind);
  void acknowledge(uint64_t received);
  void watch_input();
  void deliver(LinkMessage message);
  void write();
  void forget_output();

  EventLoop& loop_;
  Descriptor local_;
  const LinkLimits limits_;
  const std::function<bool(LinkMessage)> send_;
  bool is_connected_ = false;

  // from the descriptor to the other end
  std::deque<Piece> kept_;
  uint64_t acked_ = 0, next_ = 0;
  bool is_watched_ = false, ends_ = false, has_ended_ = false;  // ends_: with what is there now

  // from the other end to the descriptor
  struct Arrived {
    zmq::message_t bytes;
    size_t written = 0;
    bool is_end = false;
  };
  std::deque<Arrived> arrived_;
  uint64_t expected_ = 0, delivered_ = 0, told_ = 0;  // told_: of those delivered
  int untold_messages_ = 0;
  bool is_waiting_ = false;  // for room in the descriptor
  bool has_reader_ = true, end_is_delivered_ = false;
};

}  // namespace lockstep::shell
