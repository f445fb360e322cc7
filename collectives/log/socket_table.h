// Reads the kernel's tables of TCP sockets, proc_pid_net(5): /proc/PID/net/tcp and tcp6. What this process's own
// descriptors say without them is in collectives/transport/group_sockets.h.
#pragma once
#include <netinet/in.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::dist {

/// One end of a connection, as both tables have it: IPv4 in the first word alone, also where it is mapped to IPv6.
struct SocketEnd {
  int family = AF_INET;
  std::array<uint32_t, 4> address{};  // network byte order
  uint16_t port = 0;  // network byte order
  bool operator==(const SocketEnd&) const = default;

  /// "10.0.0.1:29500", or "[fd00::1]:29500".
  std::string str() const;
};

struct SocketEntry {
  SocketEnd local, remote;
  unsigned state = 0;  // TCP_LISTEN, … of netinet/tcp.h
  uid_t uid = 0;
  uint64_t inode = 0;  // 0 while no program holds it
};

/// Returns the sockets in the network namespace of a process, in time proportional to their number; 0 for this process.
/// Empty where the process is gone, or its tables may not be read.
std::vector<SocketEntry> tcp_sockets(pid_t pid = 0);

/// Returns those that the process itself holds.
std::vector<SocketEntry> own_tcp_sockets(pid_t pid);

/// Returns where this process tries to connect to without an answer (SYN_SENT): "10.0.0.1:29500". A firewall that drops
/// packets looks so, and a machine that is off.
std::vector<std::string> unanswered_connections();

}  // namespace lockstep::dist
