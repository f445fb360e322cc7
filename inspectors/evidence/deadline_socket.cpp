#include "inspectors/evidence/deadline_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

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
  // It usually is localhost or an address. For another name a name server is asked, which the deadline does not limit.
  if (const int error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found))
    throw UnreadableEvidence(fmt::format("{} can't be resolved: {}", address, gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::string reason = "no address";
  for (const addrinfo* each = found; each; each = each->ai_next) {
    fd_ = Descriptor(socket(each->ai_family, each->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, each->ai_protocol));
    int error = fd_ && connect(fd_.get(), each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      wait_for(POLLOUT, "connect");
      socklen_t size = sizeof error;
      getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return;
    reason = strerror(error);
  }
  throw UnreadableEvidence(
      fmt::format("no RAS of NCCL answers at {} ({}). It runs in processes that have an NCCL group, unless "
                  "NCCL_RAS_ENABLE is 0; NCCL_RAS_ADDR is its address",
                  address, reason));
}

void DeadlineSocket::wait_for(short events, const char* what) {
  pollfd waited{.fd = fd_.get(), .events = events, .revents = 0};
  if (poll_until({&waited, 1}, end_) <= 0)
    throw UnreadableEvidence(fmt::format("{} did not {} before the deadline", address_, what));
}

void DeadlineSocket::send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = uninterrupted([&] { return ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL); });
    if (sent > 0) {
      text.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      wait_for(POLLOUT, "take the question");
    } else {
      throw UnreadableEvidence(fmt::format("{} closed the connection: {}", address_, strerror(errno)));
    }
  }
}

bool DeadlineSocket::receive() {
  const size_t before = buffer_.size();
  Reading found = Reading::empty;
  while ((found = read_some(fd_.get(), buffer_)) == Reading::empty) wait_for(POLLIN, "answer");
  if (found == Reading::failed)
    throw UnreadableEvidence(fmt::format("{} closed the connection: {}", address_, strerror(errno)));
  received_ += buffer_.size() - before;
  if (received_ > most_) throw UnreadableEvidence(fmt::format("{} sends more than {} bytes", address_, most_));
  return found == Reading::bytes;
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
