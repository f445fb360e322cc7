// Notes which sockets a library opened for one call. c10d and Gloo give out no descriptors; comparing all open sockets
// before and after the call would include those of other threads.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collectives/transport/group_sockets.h"
#include "protocol/descriptor.h"

namespace lockstep::dist {

/// While one lives, it notes the TCP sockets that its thread connects and listens on. Not nested.
class ThreadSockets {
 public:
  ThreadSockets();
  ~ThreadSockets();
  ThreadSockets(const ThreadSockets&) = delete;
  ThreadSockets& operator=(const ThreadSockets&) = delete;

  /// Returns those noted so far that are still open and connected, or listening.
  std::vector<TcpSocket> open() const;

  /// Makes sockets on which the thread listens from now on accept connections of this user only (own_accepts.h).
  void accept_own_user_only() { own_user_only_ = true; }

  /// Lets each address be tried once from now on, until `deadline` or interrupt(). A failure throws Error with the
  /// reason, out of connect() and through the library that called it: after an error of the system c10d tries again
  /// until its own limit, since its server may not have started yet. `one_address` says that there is no other to try.
  void connect_once(std::chrono::steady_clock::time_point deadline, bool one_address);
  /// Lets a receive on what the thread connects from now on fail with EAGAIN when it waits beyond `deadline`. c10d
  /// sends a first message on a new connection and waits for the answer without a limit. Ends with this object.
  void limit_receives(std::chrono::steady_clock::time_point deadline);
  /// Returns why the first connection failed since connect_once(); empty where none has.
  std::string failure() const;
  /// Ends connecting at once, now and later, and shuts what is connected. From any thread.
  void interrupt() noexcept;

  // These stand in front of the C library's functions (interposed.cpp). `real` calls the C library's.
  static ThreadSockets* of_this_thread();
  int connect(int fd, const std::string& address, const std::function<int()>& real);
  int listen(int fd, const std::function<int()>& real);

 private:
  struct Noted {
    int fd = -1;
    uint64_t cookie = 0;
  };
  void note(int fd);
  void limit_receives_of(int fd);
  int fail(const std::string& why);
  int wait_for(int fd);

  mutable std::mutex mutex_;  // all of the following
  std::vector<Noted> noted_;
  std::set<std::string> tried_;  // addresses, since connect_once()
  std::string failure_;  // the first
  std::optional<std::chrono::steady_clock::time_point> deadline_;  // of connecting
  std::optional<std::chrono::steady_clock::time_point> receive_deadline_;
  bool one_address_ = false;
  bool own_user_only_ = false, interrupted_ = false;
  const Descriptor interrupt_event_;
};

}  // namespace lockstep::dist
