// A connection to the keeper of a detachable session (keeper.h): a terminal that types, one that looks on, a notebook that
// is there instead of one that types, or somebody who asks how the session stands. No sending waits; what there is no room
// for is kept.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/descriptor.h"
#include "shell/detached/messages.h"

namespace lockstep::shell {

class KeeperClient {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Part { stranger, types, watches, leaves };
  /// Says what has become of one that takes nothing: it gets none until it takes something again.
  enum class Change { none, falls_behind, takes_again };

  explicit KeeperClient(Descriptor socket);

  /// A stranger becomes what it asks to be.
  void accept(TerminalHello hello);
  /// Sends output to one that types or watches, in order. One that watches and has no room holds nobody up: it misses that.
  void show(std::string_view bytes);
  /// Lets go of it: all output that it is still to get, and these words, are sent before it is gone.
  void leave(const LeaveTerminal& words);
  /// Sends what there was no room for, and lets go of one that has been silent or deaf for too long.
  Change flush();
  /// Drops what it is still to get: it is drawn anew.
  void drop_unsent() { unsent_.clear(); }
  void close() { is_gone_ = true; }

  int socket() const { return socket_.get(); }
  const TerminalHello& hello() const { return hello_; }
  bool types() const { return part_ == Part::types; }
  bool is_notebook() const { return hello_.asks == Asks::notebook; }
  bool watches() const { return part_ == Part::watches; }
  bool is_stranger() const { return part_ == Part::stranger; }
  bool is_gone() const { return is_gone_; }
  bool is_behind() const { return is_behind_; }
  /// The session's output waits for it.
  bool holds_up() const { return types() && !unsent_.empty(); }
  bool waits_for_room() const { return !unsent_.empty() || is_behind_ || !last_words_.empty(); }
  /// Returns when to call flush(), although it has no room.
  std::optional<Clock::time_point> limit() const;

 private:
  void send(Mail kind, std::string& bytes);

  Descriptor socket_;
  TerminalHello hello_;
  Part part_ = Part::stranger;
  Clock::time_point since_ = Clock::now();  // that it is here, has taken nothing, or is to leave
  std::string unsent_;  // output
  std::string last_words_;  // LeaveTerminal as JSON
  bool is_behind_ = false;
  bool is_gone_ = false;
};

}  // namespace lockstep::shell
