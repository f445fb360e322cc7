#include "shell/hosts/tunnels.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace lockstep::shell {

Tunnels::Tunnels(EventLoop& loop, std::function<void(int64_t, std::string)> send)
    : loop_(loop), send_(std::move(send)) {}

Tunnels::~Tunnels() {
  while (!open_.empty()) close(open_.begin()->first);
}

void Tunnels::open(int64_t number, Descriptor socket) {
  set_nonblocking(socket.get());
  loop_.watch(socket.get(), [this, number] { read(number); });
  open_[number].socket = std::move(socket);
}

void Tunnels::read(int64_t number) {
  std::string bytes;
  const Reading found = read_some(open_.at(number).socket.get(), bytes);
  if (found == Reading::empty) return;
  if (found != Reading::bytes) close(number);
  send_(number, std::move(bytes));
}

void Tunnels::deliver(int64_t number, std::string_view bytes) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;  // it has ended here meanwhile
  Connection& one = found->second;
  one.ends = one.ends || bytes.empty();
  const bool waits = !one.out.empty();
  one.out += bytes;
  if (!waits) write(number);
}

void Tunnels::write(int64_t number) {
  Connection& one = open_.at(number);
  const int fd = one.socket.get();
  const ssize_t count = uninterrupted([&] { return ::send(fd, one.out.data(), one.out.size(), MSG_NOSIGNAL); });
  if (count > 0) one.out.erase(0, static_cast<size_t>(count));
  if (count < 0 && errno != EAGAIN) one.out.clear();  // the reader is told that it has ended
  loop_.forget_writable(fd);
  if (!one.out.empty())
    loop_.watch_writable(fd, [this, number] { write(number); });
  else if (one.ends)
    close(number);
}

void Tunnels::close(int64_t number) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  loop_.forget(found->second.socket.get());
  loop_.forget_writable(found->second.socket.get());
  open_.erase(found);
}

}  // namespace lockstep::shell
