// The network by which ranks of a session on several machines reach one another.
#pragma once
#include <chrono>
#include <string>

namespace lockstep::shell {

struct Interface {
  std::string name;  // "eth0"
  std::string address;  // IPv4
  bool is_loopback() const { return address.starts_with("127."); }
};

/// Returns the interface at which other machines reach this one: that of GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME; else that
/// of the address to which ssh came (SSH_CONNECTION), of this machine's name, or the first one that is up. `is_alone`: no
/// other machine is to reach it, so that the loopback interface does. Throws StartError where there is none.
Interface interface_of_this_host(bool is_alone);

/// Returns the interface by which this machine reaches `address`: that of GLOO_SOCKET_IFNAME, or else the one that the
/// kernel chooses. Throws StartError where there is no way.
Interface interface_towards(const std::string& address);

/// Throws StartError, with what to look for, where nothing at "10.0.0.1:1234" can be connected to within `limit`.
void check_reach(const std::string& endpoint, std::chrono::milliseconds limit);

}  // namespace lockstep::shell
