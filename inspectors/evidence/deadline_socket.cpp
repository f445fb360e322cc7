#include "inspectors/evidence/deadline_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "inspectors/evidence/evidence.h"

namespace lockstep::inspect {
namespace {

using Clock = std::chrono::steady_clock;

struct Address {
  std::string host, port;
};

Address split(const std::string& address) {
  const size_t colon = address.rfind(':');
  Address result;
  if (colon != std::string::npos) {
    result.host = address.substr(0, colon);
    result.port = address.substr(colon + 1);
  }
  if (result.host.size() >= 2 && result.host.front() == '[' && result.host.back() == ']')
    result.host = result.host.substr(1, result.host.size() - 2);
  if (result.host.empty() || result.port.empty() || result.port.find_first_not_of("0123456789") != std::string::npos)
    throw UnreadableEvidence(fmt::format("\"{}\" is no address of NCCL's RAS: HOST:PORT is expected", address));
  return result;
}

}  // namespace

DeadlineSocket::DeadlineSocket(const std::string& address, std::chrono::milliseconds deadline, size_t most)
    : address_(address), end_(Clock::now() + deadline), most_(most) {
  const Address parts = split(address);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  // localhost or an address, usually. For another name a name server is asked, which the deadline does not limit.
  if (const int error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found))
    throw UnreadableEvidence(fmt::format("{} can't be resolved: {}", address, gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::string reason = "no address";
  for (const addrinfo* each = found; each; each = each->ai_next) {
    fd_ = socket(each->ai_family, each->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, each->ai_protocol);
    if (fd_ < 0) {
      reason = strerror(errno);
      continue;
    }
    int error = connect(fd_, each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
    try {
      if (error == EINPROGRESS) {
        wait_for(POLLOUT, "connect");
        socklen_t size = sizeof error;
        getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
      }
    } catch (...) {  // the destructor does not run
      close(fd_);
      throw;
    }
    if (error == 0) return;
    reason = strerror(error);
    close(fd_);
    fd_ = -1;
  }
  throw UnreadableEvidence(
      fmt::format("no RAS of NCCL answers at {} ({}). It runs in processes that have an NCCL group, unless "
                  "NCCL_RAS_ENABLE is 0; NCCL_RAS_ADDR is its address",
                  address, reason));
}

DeadlineSocket::~DeadlineSocket() {
  if (fd_ >= 0) close(fd_);
}

void DeadlineSocket::wait_for(short events, const char* what) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now()).count();
    pollfd waited{.fd = fd_, .events = events, .revents = 0};
    const int count = left > 0 ? poll(&waited, 1, static_cast<int>(std::min<int64_t>(left, INT32_MAX))) : 0;
    if (count > 0) return;
    if (count < 0 && errno == EINTR) continue;
    throw UnreadableEvidence(fmt::format("{} did not {} before the deadline", address_, what));
  }
}

void DeadlineSocket::send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      text.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(POLLOUT, "take the question");
    } else if (errno != EINTR) {
      throw UnreadableEvidence(fmt::format("{} closed the connection: {}", address_, strerror(errno)));
    }
  }
}

bool DeadlineSocket::receive() {
  char bytes[16384];
  while (true) {
    const ssize_t count = recv(fd_, bytes, sizeof bytes, 0);
    if (count == 0) return false;
    if (count > 0) {
      received_ += static_cast<size_t>(count);
      if (received_ > most_) throw UnreadableEvidence(fmt::format("{} sends more than {} bytes", address_, most_));
      buffer_.append(bytes, static_cast<size_t>(count));
      return true;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(POLLIN, "answer");
    } else if (errno != EINTR) {
      throw UnreadableEvidence(fmt::format("{} closed the connection: {}", address_, strerror(errno)));
    }
  }
}

std::string DeadlineSocket::line() {
  while (true) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string result = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (result.ends_with('\r')) result.pop_back();
      return result;
    }
    if (!receive()) throw UnreadableEvidence(address_ + " closed the connection before it answered");
  }
}

std::string DeadlineSocket::rest() {
  while (receive()) {
  }
  return std::move(buffer_);
}

}  // namespace lockstep::inspect
