// Descriptors of files, pipes, sockets and processes: owners that close them, and calls that go on after a signal's
// handler and read or write as much as they are asked for. What fails says why in errno.
#pragma once
#include <poll.h>
#include <sys/types.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

/// Makes a system call, and makes it again where a signal's handler has interrupted it. Async-signal-safe.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// A descriptor that is closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  /// Gives it up: it is the caller's from now on.
  int release() { return std::exchange(fd_, -1); }
  /// Closes it. False where the system reports what an earlier write could not do.
  bool reset();

 private:
  int fd_ = -1;
};

/// A pipe, both ends close-on-exec. Throws StartError.
struct Pipe {
  Descriptor read, write;
};
Pipe make_pipe();

/// Both ends of a stream socket, close-on-exec. Throws StartError.
std::pair<Descriptor, Descriptor> make_socket_pair();

/// From here on no call on `fd` waits.
void set_nonblocking(int fd);

/// Writes all of `bytes`. False where that failed; a part of them may have been written. Async-signal-safe.
bool write_all(int fd, std::string_view bytes);
/// The same to a socket. No SIGPIPE where the other end is gone.
bool send_all(int fd, std::string_view bytes);

/// What one reading has found. A descriptor that waits is never `empty`.
enum class Reading { bytes, empty, end, failed };
/// Reads once, and appends what it has read, at most `most` bytes, to `text`.
Reading read_some(int fd, std::string& text, size_t most = 1 << 16);
/// All until the input ends or fails.
std::string read_to_end(int fd);
/// Reads `size` bytes, or fewer where the input ends or fails. Returns how many; -1 where it failed at once.
/// Async-signal-safe.
ssize_t read_all(int fd, void* data, size_t size);
/// Reads `size` bytes of a file from `offset` on, or fewer where it ends, or fails.
std::string read_at(int fd, size_t size, off_t offset = 0);

/// Waits until one of `polled` has events, without a deadline for as long as it takes. Returns how many have events, 0 where
/// the deadline has passed, -1 where waiting failed.
int poll_until(std::span<pollfd> polled, std::optional<std::chrono::steady_clock::time_point> deadline = std::nullopt);
/// Whether `fd` has one of `events`, or its other end is gone, within `limit`.
bool is_ready(int fd, short events, std::chrono::milliseconds limit = {});

/// An event of the kernel, readable from set_event() to take_event(), which say whether that could be done.
/// Async-signal-safe, but for make_event(). None where no descriptor is left.
Descriptor make_event();
bool set_event(int event);
bool take_event(int event);

/// A descriptor of a process, readable once the process has ended; none where there is no such process.
Descriptor open_process(pid_t pid);
/// Sends `signal` to the process of a descriptor and to no later one of its number. Async-signal-safe.
bool signal_process(int process, int signal);

}  // namespace lockstep
