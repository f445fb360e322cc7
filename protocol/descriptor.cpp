#include "protocol/descriptor.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "protocol/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void throw_not_made(const char* what) {
  throw StartError(std::string(what) + " could not be made: " + std::strerror(errno) + " (ulimit -n)");
}

/// Writes all by `write`, which takes a part of them.
template <typename Write>
bool all_by(const Write& write, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = uninterrupted([&] { return write(bytes); });
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

/// Reads `size` bytes by `read`, which gets how many are there.
template <typename Read>
ssize_t all_from(const Read& read, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t count = uninterrupted([&] { return read(done); });
    if (count < 0 && done == 0) return -1;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

bool Descriptor::reset() { return fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0; }

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_not_made("a pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::pair<Descriptor, Descriptor> make_socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw_not_made("a pair of sockets");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void set_nonblocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

bool write_all(int fd, std::string_view bytes) {
  return all_by([fd](std::string_view rest) { return ::write(fd, rest.data(), rest.size()); }, bytes);
}

bool send_all(int fd, std::string_view bytes) {
  return all_by([fd](std::string_view rest) { return ::send(fd, rest.data(), rest.size(), MSG_NOSIGNAL); }, bytes);
}

Reading read_some(int fd, std::string& text, size_t most) {
  char bytes[1 << 16];
  const ssize_t count = uninterrupted([&] { return ::read(fd, bytes, std::min(most, sizeof bytes)); });
  if (count < 0) return errno == EAGAIN ? Reading::empty : Reading::failed;
  text.append(bytes, static_cast<size_t>(count));
  return count > 0 ? Reading::bytes : Reading::end;
}

std::string read_to_end(int fd) {
  std::string text;
  while (read_some(fd, text) == Reading::bytes) continue;
  return text;
}

ssize_t read_all(int fd, void* data, size_t size) {
  return all_from([&](size_t done) { return ::read(fd, static_cast<char*>(data) + done, size - done); }, size);
}

std::string read_at(int fd, size_t size, off_t offset) {
  std::string bytes(size, '\0');
  const ssize_t count = all_from(
      [&](size_t done) { return ::pread(fd, bytes.data() + done, size - done, offset + static_cast<off_t>(done)); },
      size);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  return bytes;
}

int poll_until(std::span<pollfd> polled, std::optional<Clock::time_point> deadline) {
  return uninterrupted([&] {
    int64_t left_ms = -1;
    if (deadline) {
      left_ms = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
      if (left_ms <= 0) return 0;
    }
    return ::poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(left_ms, 1 << 30)));
  });
}

bool is_ready(int fd, short events, std::chrono::milliseconds limit) {
  pollfd polled{fd, events, 0};
  if (limit.count() > 0) return poll_until({&polled, 1}, Clock::now() + limit) > 0;
  return uninterrupted([&] { return ::poll(&polled, 1, 0); }) > 0;
}

Descriptor make_event() { return Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

bool set_event(int event) {
  const uint64_t one = 1;
  return ::write(event, &one, sizeof one) == sizeof one;
}

bool take_event(int event) {
  uint64_t count;
  return ::read(event, &count, sizeof count) == sizeof count;
}

Descriptor open_process(pid_t pid) { return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

bool signal_process(int process, int signal) {
  return ::syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0) == 0;
}

}  // namespace lockstep
