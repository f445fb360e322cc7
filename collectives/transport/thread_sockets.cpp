#include "collectives/transport/thread_sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collectives/transport/own_accepts.h"
#include "protocol/descriptor.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

namespace {
thread_local ThreadSockets* noting = nullptr;

void set_receive_limit(int fd, std::chrono::microseconds limit) {  // zero: none
  const timeval value{.tv_sec = limit.count() / 1'000'000, .tv_usec = limit.count() % 1'000'000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof value);
}

bool is_tcp(int fd) {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
}
}  // namespace

ThreadSockets::ThreadSockets() : interrupt_event_(make_event()) { noting = this; }

ThreadSockets::~ThreadSockets() {
  noting = nullptr;
  if (receive_deadline_)
    for (const Noted& noted : noted_)
      if (socket_cookie(noted.fd) == noted.cookie) set_receive_limit(noted.fd, {});
}

ThreadSockets* ThreadSockets::of_this_thread() { return noting; }

std::vector<TcpSocket> ThreadSockets::open() const {
  std::lock_guard lock(mutex_);
  std::vector<TcpSocket> found;
  for (const Noted& noted : noted_) {
    if (socket_cookie(noted.fd) != noted.cookie) continue;  // closed; the number may be another's by now
    TcpSocket socket = describe_tcp_socket(noted.fd);
    if (socket.listening || !socket.remote.empty()) found.push_back(std::move(socket));
  }
  return found;
}

void ThreadSockets::connect_once(std::chrono::steady_clock::time_point deadline, bool one_address) {
  std::lock_guard lock(mutex_);
  deadline_ = deadline;
  one_address_ = one_address;
}

void ThreadSockets::limit_receives(std::chrono::steady_clock::time_point deadline) {
  std::lock_guard lock(mutex_);
  receive_deadline_ = deadline;
}

void ThreadSockets::limit_receives_of(int fd) {
  const auto left = std::chrono::ceil<std::chrono::microseconds>(*receive_deadline_ - std::chrono::steady_clock::now());
  set_receive_limit(fd, std::max(left, std::chrono::microseconds(1)));
}

void ThreadSockets::interrupt() noexcept {
  std::lock_guard lock(mutex_);
  interrupted_ = true;
  set_event(interrupt_event_.get());
  for (const Noted& noted : noted_)
    if (socket_cookie(noted.fd) == noted.cookie) shutdown(noted.fd, SHUT_RDWR);
}

void ThreadSockets::note(int fd) {
  const uint64_t cookie = socket_cookie(fd);
  const bool known =
      std::any_of(noted_.begin(), noted_.end(), [&](const Noted& each) { return each.cookie == cookie; });
  if (cookie != 0 && !known) noted_.push_back({fd, cookie});
}

std::string ThreadSockets::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

int ThreadSockets::fail(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = why;
  if (one_address_ || interrupted_) throw Error(failure_);
  errno = ECANCELED;  // the next address
  return -1;
}

int ThreadSockets::wait_for(int fd) {
  pollfd watched[] = {{.fd = fd, .events = POLLOUT, .revents = 0},
                      {.fd = interrupt_event_.get(), .events = POLLIN, .revents = 0}};
  const int ready = poll_until(watched, deadline_);
  if (ready < 0) return fail(std::strerror(errno));
  if (ready == 0) return fail("no answer within the time limit");
  if (watched[1].revents != 0) return fail("interrupted");
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? 0 : fail(std::strerror(error));
}

int ThreadSockets::connect(int fd, const std::string& address, const std::function<int()>& real) {
  if (!is_tcp(fd)) return real();
  {
    std::lock_guard lock(mutex_);
    if (interrupted_) throw Error("interrupted");
    if (deadline_ && !tried_.insert(address).second)
      throw Error(failure_.empty() ? "the connection was closed at once" : failure_);
    note(fd);
    if (receive_deadline_) limit_receives_of(fd);
  }
  const int result = real();
  if (result == 0 || !deadline_ || errno == EINTR) return result;
  return errno == EINPROGRESS ? wait_for(fd) : fail(std::strerror(errno));
}

int ThreadSockets::listen(int fd, const std::function<int()>& real) {
  if (is_tcp(fd)) {
    std::lock_guard lock(mutex_);
    note(fd);
    if (own_user_only_) dist::accept_own_user_only(fd);
  }
  return real();
}

}  // namespace lockstep::dist
