// The socket at which the keeper of a detachable session waits for terminals of the same user:
//
//   $XDG_RUNTIME_DIR/lockstep/ID.terminal (or in /tmp/lockstep-<uid>-XXXXXX/), mode 0600, in a folder with mode 0700
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "protocol/descriptor.h"
#include "shell/detached/messages.h"

namespace lockstep::shell {

/// Listens for terminals of the session `id`. What is there under the socket's name listens already. Throws StartError.
struct SessionSocket {
  explicit SessionSocket(const std::string& id);
  ~SessionSocket();  // removes it
  SessionSocket(const SessionSocket&) = delete;
  SessionSocket& operator=(const SessionSocket&) = delete;

  /// Returns the next connection; none where there is none, or it is another user's.
  Descriptor accept() const;

  std::string path;
  Descriptor listener;
};

/// A session that terminals can be attached to.
struct DetachableSession {
  std::string path;  // of the socket
  KeeperAnswer state;  // `problem` and the id, where its keeper does not answer
};

/// Asks all of this user's on this machine, each for at most a second. Oldest change first.
std::vector<DetachableSession> detachable_sessions();

/// Returns the one that `id`, the beginning of an id, or "last" means: that which was detached last, or else attached.
/// Nothing where there is none. Throws UsageError where several ids begin so.
std::optional<DetachableSession> find_detachable(const std::string& id);

/// Connects to a keeper of this user. Throws UsageError.
Descriptor connect_to_keeper(const std::string& path);

/// Removes the sockets of keepers that were killed, also half-made ones. Returns the ids of their sessions.
std::vector<std::string> clean_session_sockets();

/// Says that this program and the session's keeper are of different versions.
std::string words_of_other_version(const std::string& id);
/// Says how it stands: "attached: /dev/pts/3", "detached until 15:32".
std::string words_of(const KeeperAnswer& state);
/// Returns 14:02, or with its date where that is another day.
std::string clock_text(int64_t seconds);

}  // namespace lockstep::shell
