#include "collectives/log/socket_table.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

namespace lockstep::dist {
namespace {

std::string folder_of(pid_t pid) { return pid == 0 ? "/proc/self" : fmt::format("/proc/{}", pid); }

/// Parses "0100007F:1F90", or an IPv6 address: words in the machine's byte order, and the port as a number.
std::optional<SocketEnd> parse_socket_end(const std::string& text) {
  SocketEnd end;
  unsigned port = 0;
  uint32_t words[4];
  if (text.size() < 20) {
    if (std::sscanf(text.c_str(), "%8" SCNx32 ":%4x", &words[0], &port) != 2) return std::nullopt;
    end.address[0] = words[0];
  } else {
    if (std::sscanf(text.c_str(), "%8" SCNx32 "%8" SCNx32 "%8" SCNx32 "%8" SCNx32 ":%4x", &words[0], &words[1],
                    &words[2], &words[3], &port) != 5)
      return std::nullopt;
    if (words[0] == 0 && words[1] == 0 && words[2] == htonl(0xffff)) {
      end.address[0] = words[3];
    } else {
      end.family = AF_INET6;
      std::memcpy(end.address.data(), words, sizeof words);
    }
  }
  end.port = htons(static_cast<uint16_t>(port));
  return end;
}

/// Leaves the sockets that the process holds.
void keep_own(std::vector<SocketEntry>& sockets, pid_t pid) {
  std::set<std::string> held;
  std::error_code error;
  for (std::filesystem::directory_iterator each(folder_of(pid) + "/fd", error), end; !error && each != end;
       each.increment(error)) {
    std::error_code gone;
    held.insert(std::filesystem::read_symlink(each->path(), gone).string());
  }
  std::erase_if(sockets,
                [&](const SocketEntry& each) { return !held.contains(fmt::format("socket:[{}]", each.inode)); });
}

}  // namespace

std::string SocketEnd::str() const {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(family, address.data(), text, sizeof text);
  return family == AF_INET6 ? fmt::format("[{}]:{}", text, ntohs(port)) : fmt::format("{}:{}", text, ntohs(port));
}

std::vector<SocketEntry> tcp_sockets(pid_t pid) {
  std::vector<SocketEntry> sockets;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream file(folder_of(pid) + table);
    std::string line;
    std::getline(file, line);  // the heading
    while (std::getline(file, line)) {
      char here[64], there[64];
      SocketEntry socket;
      if (std::sscanf(line.c_str(), " %*[^:]: %63s %63s %x %*s %*s %*s %u %*s %" SCNu64, here, there, &socket.state,
                      &socket.uid, &socket.inode) != 5)
        continue;
      const auto local = parse_socket_end(here), remote = parse_socket_end(there);
      if (!local || !remote) continue;
      socket.local = *local;
      socket.remote = *remote;
      sockets.push_back(socket);
    }
  }
  return sockets;
}

std::vector<SocketEntry> own_tcp_sockets(pid_t pid) {
  std::vector<SocketEntry> sockets = tcp_sockets(pid);
  keep_own(sockets, pid);
  return sockets;
}

std::vector<std::string> unanswered_connections() {
  std::vector<SocketEntry> sockets = tcp_sockets();
  std::erase_if(sockets, [](const SocketEntry& each) { return each.state != TCP_SYN_SENT; });
  if (sockets.empty()) return {};
  keep_own(sockets, 0);
  std::set<std::string> ends;
  for (const SocketEntry& each : sockets) ends.insert(each.remote.str());
  return {ends.begin(), ends.end()};
}

}  // namespace lockstep::dist
