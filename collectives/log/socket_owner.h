// Finds the user of this machine at the other end of a TCP connection. The kernel knows the owner of every socket; it
// answers for one connection (sock_diag), or lists all (/proc/net/tcp) where it was built without that.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

namespace lockstep::dist {

/// Returns the user that opened the socket at the other end of the connection `fd`. While the program there has not
/// accepted the connection, that is the user that listens. Returns nothing when no process of this machine (of this
/// network namespace) holds it: the peer is on another machine, or it has closed its end.
std::optional<uid_t> peer_owner(int fd);

/// Reads the same from /proc/net/tcp and tcp6, which costs time in proportion to the machine's connections.
std::optional<uid_t> peer_owner_from_proc(int fd);

/// Throws Error unless the peer of `fd` is a process of this user. `what` begins the message: "the store at
/// 127.0.0.1:4711".
void require_own_peer(int fd, const std::string& what);

}  // namespace lockstep::dist
