#include "shell/look/worker_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <filesystem>
#include <utility>

#include "collectives/log/socket_table.h"
#include "protocol/descriptor.h"
#include "protocol/files.h"
#include "protocol/unix_address.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kLargestAnswer = size_t{256} << 20;

bool runs_server(int64_t pid) {
  std::error_code error;
  for (fs::directory_iterator thread(fmt::format("/proc/{}/task", pid), error), end; !error && thread != end;
       thread.increment(error))
    if (protocol::read_file(thread->path().string() + "/comm").value_or("").starts_with("pt_workerserver")) return true;
  return false;
}

/// Returns the ports at which the process listens for connections to any address, also of IPv6.
std::vector<uint16_t> ports_of(int64_t pid) {
  std::vector<uint16_t> ports;
  for (const dist::SocketEntry& each : dist::own_tcp_sockets(static_cast<pid_t>(pid)))
    if (each.state == TCP_LISTEN && each.local.family == AF_INET6 && each.local.address == std::array<uint32_t, 4>{})
      ports.push_back(ntohs(each.local.port));
  return ports;
}

/// Returns the body of the answer to a question; empty where there is none.
std::string answer_of(const sockaddr* address, socklen_t size, const char* question, Clock::time_point deadline) {
  const Descriptor fd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || (::connect(fd.get(), address, size) != 0 && errno != EINPROGRESS)) return {};
  pollfd polled{.fd = fd.get(), .events = POLLOUT, .revents = 0};
  if (poll_until({&polled, 1}, deadline) <= 0 ||
      !send_all(fd.get(), fmt::format("POST /handler/{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                                      "Connection: close\r\n\r\n",
                                      question)))
    return {};
  std::string text;
  polled.events = POLLIN;
  while (text.size() < kLargestAnswer && poll_until({&polled, 1}, deadline) > 0)
    if (read_some(fd.get(), text) != Reading::bytes) break;
  const size_t end = text.find("\r\n\r\n");
  return text.starts_with("HTTP/1.") && text.substr(8, 5) == " 200 " && end != std::string::npos ? text.substr(end + 4)
                                                                                                 : "";
}

std::vector<std::string> recorders_at(const sockaddr* address, socklen_t size, Clock::time_point deadline) {
  std::vector<std::string> found;
  for (const char* question : {"fr_trace_json", "dump_nccl_trace_json"})
    if (std::string body = answer_of(address, size, question, deadline); body.starts_with('{'))
      found.push_back(std::move(body));
  return found;
}

}  // namespace

std::vector<std::string> ask_worker_server(int64_t pid, const std::string& socket, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  if (!runs_server(pid)) return {};
  if (const auto file = unix_address(socket); file && !socket.empty())
    return recorders_at(reinterpret_cast<const sockaddr*>(&*file), sizeof *file, deadline);
  for (const uint16_t port : ports_of(pid)) {
    sockaddr_in6 address{.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    auto found = recorders_at(reinterpret_cast<const sockaddr*>(&address), sizeof address, deadline);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace lockstep::shell
