// Holds messages to a relay that have not been written yet. They are written in their order, with two exceptions: a
// file goes in pieces, of which only a few are on their way at a time, and urgent messages overtake the pieces that
// wait. So an interrupt, or a ping, never waits behind an object of megabytes on a slow link.
#pragma once
#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "protocol/descriptor.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell {

class RelayOutbox {
 public:
  static constexpr size_t kPiece = 256 << 10;  // bytes of a file
  static constexpr int kPieces = 4;  // that the relay has not taken yet

  explicit RelayOutbox(EventLoop& loop) : loop_(loop) {}
  ~RelayOutbox() { close(); }
  RelayOutbox(const RelayOutbox&) = delete;
  RelayOutbox& operator=(const RelayOutbox&) = delete;

  /// Writes to `to` from now on.
  void open(Descriptor to);
  /// Drops what has not been written, and ends the relay's input.
  void close();
  bool is_open() const { return static_cast<bool>(to_); }

  /// `bytes`: protocol::wire_bytes() of a message.
  void push(std::string bytes, bool is_urgent = false);
  /// Sends a file in messages PutFile. `bytes` may go to several hosts, and is not copied.
  void push_file(const std::string& name, const std::shared_ptr<const std::string>& bytes);
  /// Notes that the relay has taken a piece of a file (FileTaken).
  void taken();

  /// Returns the descriptor to which something can be written once it is writable; -1: nothing is to be written.
  int waiting() const;
  /// Writes as much as the descriptor takes now.
  void write();

 private:
  struct Letter {
    std::string bytes;
    std::shared_ptr<const std::string> file;  // of which a piece follows; null: none
    size_t from = 0, size = 0;  // that piece

    size_t length() const { return bytes.size() + size; }
  };

  void flush();

  EventLoop& loop_;
  Descriptor to_;
  std::deque<Letter> letters_;
  size_t written_ = 0;  // bytes of the first of them
  int on_their_way_ = 0;  // pieces of files
  bool is_watched_ = false;
};

}  // namespace lockstep::shell
