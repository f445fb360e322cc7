#include "shell/link/strangers.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <utility>

#include "shell/link/link_messages.h"

namespace lockstep::shell {
namespace {

constexpr int kMostWaiting = 256, kMostWaitingOfOne = 64;  // who is not admitted may try again
constexpr size_t kMostTold = 64;  // addresses

/// The port at which the connection has come; 0 where it is of another kind.
int local_port(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

std::string peer_address(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  char text[NI_MAXHOST];
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) !=
          0)
    return "an address that is not known";
  return text;
}

}  // namespace

Strangers::Strangers(EventLoop& loop, zmq::context_t& context, zmq::socket_ref socket, int port,
                     std::function<void(std::string)> report, std::function<void(int)> ended)
    : loop_(loop),
      socket_(socket),
      port_(port),
      report_(std::move(report)),
      ended_(std::move(ended)),
      monitor_(monitor_of(context, socket, "link-strangers", ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED)),
      check_([this](int fd) { return admits(fd); }) {
  loop_.watch(monitor_, [this] { take_events(); });
}

Strangers::~Strangers() {
  loop_.forget(monitor_);
  zmq_socket_monitor(socket_.handle(), nullptr, 0);
}

bool Strangers::admits(int descriptor) {
  if (local_port(descriptor) != port_) return true;
  std::string address = peer_address(descriptor);
  const std::lock_guard lock(mutex_);
  int& of_address = counts_[address];
  if (count_ >= kMostWaiting || of_address >= kMostWaitingOfOne) {
    if (of_address == 0) counts_.erase(address);
    return false;
  }
  ++of_address;
  ++count_;
  accepted_.push_back({descriptor, std::move(address)});
  return true;
}

void Strangers::leaves(const std::string& address) {
  const std::lock_guard lock(mutex_);
  const auto found = counts_.find(address);
  if (found == counts_.end()) return;
  --count_;
  if (--found->second == 0) counts_.erase(found);
}

void Strangers::take_events() {
  while (const auto event = next_event(monitor_)) {
    const int descriptor = event->value;
    if (event->kind == ZMQ_EVENT_ACCEPTED) {
      // Both come from the same thread in the same order. A connection that has ended at once has no event.
      std::optional<Accepted> found;
      do {
        if (found) leaves(found->address);
        const std::lock_guard lock(mutex_);
        if (accepted_.empty()) return;
        found = std::move(accepted_.front());
        accepted_.pop_front();
      } while (found->descriptor != descriptor);
      waiting_[descriptor] = std::move(found->address);
    } else if (const auto ended = waiting_.extract(descriptor); !ended.empty()) {
      leaves(ended.mapped());
      if (!known_.contains(ended.mapped()))
        refuse(ended.mapped(), "it ended before it had shown a key of this session");
    } else {
      ended_(descriptor);
    }
  }
}

void Strangers::belongs(int descriptor) {
  take_events();
  if (const auto found = waiting_.extract(descriptor); !found.empty()) leaves(found.mapped());
}

void Strangers::refuse(const std::string& address, const std::string& why) {
  if (told_.size() >= kMostTold || !told_.insert(address).second) return;
  report_(fmt::format("a connection from {} was refused: {}{}", address, why,
                      told_.size() == kMostTold ? "; what other addresses try is not told any more" : ""));
}

}  // namespace lockstep::shell
