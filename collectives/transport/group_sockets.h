// Finds the TCP sockets of one process group by their addresses, and holds them so that any thread can shut them down.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace lockstep::dist {

/// A TCP socket of this process. Addresses read "[127.0.0.1]:4711"; `remote` is empty for one that listens.
struct TcpSocket {
  int fd = -1;
  std::string local, remote;
  bool listening = false;
};

/// Returns every TCP socket that is open in this process now.
std::vector<TcpSocket> open_tcp_sockets();

/// Returns what is known of one TCP socket.
TcpSocket describe_tcp_socket(int fd);

/// Returns the address that the socket `fd` has here; empty where it has none.
std::string local_address(int fd);

/// Returns the kernel's number for the socket `fd`, which no other socket ever gets, or 0 where `fd` is no socket. A
/// descriptor's number is used again once it is closed.
uint64_t socket_cookie(int fd);

/// Holds duplicates of sockets. The owner of the originals may close them at any time: a descriptor number that is used
/// again for something else is never touched.
class HeldSockets {
 public:
  HeldSockets() = default;
  HeldSockets(const HeldSockets&) = delete;
  HeldSockets& operator=(const HeldSockets&) = delete;
  ~HeldSockets();

  /// Holds each open socket that is connected from `listener` (accepted there) or to one of `peer_listeners`. The
  /// originals are set close-on-exec, so that a child process does not keep a connection alive. Where ranks are threads
  /// of one process, connections between other ranks of the group can't be distinguished and are held, too: shut down
  /// all, or none.
  void hold_connections(const std::string& listener, const std::set<std::string>& peer_listeners);
  void hold(const TcpSocket& socket);
  /// Whether a write into one of the connections of hold_connections was counted as done although it was closed
  /// (group_writes.cpp).
  bool lost_writes() const { return lost_writes_->load(); }

  /// Whether one of the connections has ended: its peer closed it or died, the network failed, or it was shut down
  /// here.
  bool any_ended() const;
  /// Throws Error unless each connection ends in a process of this user; `what` names it (require_own_peer).
  void require_own_peers(const std::string& what) const;

  /// Ends the connections: reads and writes on both sides fail from now on.
  void shut_down() noexcept;
  size_t size() const { return fds_.size(); }
  /// Returns the duplicates.
  const std::vector<int>& descriptors() const { return fds_; }

 private:
  std::vector<int> fds_;
  std::vector<std::string> watched_;  // local addresses that group_writes.cpp knows
  std::shared_ptr<std::atomic<bool>> lost_writes_ = std::make_shared<std::atomic<bool>>(false);
};

/// From now on, and until forget_writes, a write into a closed connection from `local` sets `lost` and counts as done.
void watch_writes(const std::string& local, const std::shared_ptr<std::atomic<bool>>& lost);
void forget_writes(const std::string& local, const std::shared_ptr<std::atomic<bool>>& lost);
/// The hook of writev() calls it after a write into `fd` failed because the connection is closed. Returns whether that
/// counts as done.
bool count_write_as_done(int fd);

}  // namespace lockstep::dist
