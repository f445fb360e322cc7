#include "shell/hosts/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "shell/hosts/host.h"

namespace lockstep::shell {
namespace {

std::string text_of(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return text;
}

/// Returns those that are up and have an IPv4 address.
std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* each = list; each; each = each->ifa_next)
    if (each->ifa_addr && each->ifa_addr->sa_family == AF_INET && (each->ifa_flags & IFF_UP) != 0)
      found.push_back({each->ifa_name, text_of(*reinterpret_cast<const sockaddr_in*>(each->ifa_addr))});
  return found;
}

std::optional<Interface> interface_with(const std::string& address) {
  for (Interface& each : interfaces())
    if (each.address == address) return std::move(each);
  return std::nullopt;
}

/// Returns the one that the user has named. Throws StartError where it is not there.
std::optional<Interface> chosen_interface() {
  for (const char* variable : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    const char* const value = std::getenv(variable);
    if (!value || !*value) continue;
    const std::string name = std::string(value).substr(0, std::string(value).find(','));
    for (Interface& each : interfaces())
      if (each.name == name) return std::move(each);
    if (variable == std::string("GLOO_SOCKET_IFNAME"))  // NCCL takes beginnings of names, and "^" and "="
      throw StartError(fmt::format("{}={}: {} has no such interface that is up", variable, value, this_host()));
  }
  return std::nullopt;
}

/// "CLIENT PORT SERVER PORT".
std::string address_of_ssh() {
  const char* const connection = std::getenv("SSH_CONNECTION");
  std::istringstream words(connection ? connection : "");
  std::string client, port, server;
  words >> client >> port >> server;
  return server;
}

std::vector<std::string> addresses_of(const std::string& name) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<std::string> found;
  for (const addrinfo* each = list; each; each = each->ai_next)
    found.push_back(text_of(*reinterpret_cast<const sockaddr_in*>(each->ai_addr)));
  return found;
}

}  // namespace

Interface interface_of_this_host(bool is_alone) {
  if (const auto chosen = chosen_interface()) return *chosen;
  if (is_alone) return {.name = "lo", .address = "127.0.0.1"};
  std::vector<std::string> addresses = {address_of_ssh()};
  std::ranges::move(addresses_of(this_host()), std::back_inserter(addresses));
  for (const std::string& address : addresses)
    if (const auto found = interface_with(address); found && !found->is_loopback()) return *found;
  for (const Interface& each : interfaces())
    if (!each.is_loopback()) return each;
  throw StartError(fmt::format("{} has no network interface that other hosts could reach (ip -4 addr)", this_host()));
}

Interface interface_towards(const std::string& address) {
  if (const auto chosen = chosen_interface()) return *chosen;
  sockaddr_in to = {}, from = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);  // nothing is sent
  socklen_t size = sizeof from;
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1 || !socket ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&from), &size) != 0)
    throw StartError(fmt::format("{} has no way to {} ({}): name the interface in GLOO_SOCKET_IFNAME on both hosts",
                                 this_host(), address, std::strerror(errno)));
  const auto found = interface_with(text_of(from));
  if (!found) throw StartError(fmt::format("{} has no interface of the address {}", this_host(), text_of(from)));
  return *found;
}

void check_reach(const std::string& endpoint, std::chrono::milliseconds limit) {
  const size_t colon = endpoint.rfind(':');
  const std::string address = endpoint.substr(0, colon);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(endpoint.c_str() + colon + 1)));
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = ETIMEDOUT;
  socklen_t size = sizeof error;
  if (!socket || ::inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1)
    error = EINVAL;
  else if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 && errno != EINPROGRESS)
    error = errno;
  else if (is_ready(socket.get(), POLLOUT, limit))
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) return;
  throw StartError(fmt::format(
      "{} can't reach the store of the session at {} ({}): does a firewall between the hosts drop their packets? "
      "Another "
      "network is chosen with GLOO_SOCKET_IFNAME in the environment that the first host gives to what is started there",
      this_host(), endpoint, std::strerror(error)));
}

}  // namespace lockstep::shell
