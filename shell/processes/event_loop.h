// Waits for everything that a session waits for in one zmq_poll: sockets of ZeroMQ, descriptors and deadlines. Nothing
// is polled with a period.
//
// One thread. Callbacks may add and remove what is watched, theirs too, and may run the loop again (a magic that waits
// for an answer).
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>
#include <zmq.hpp>

namespace lockstep::shell {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Callback = std::function<void()>;
  using Timer = uint64_t;

  /// Calls `ready` whenever `fd` can be read or its other end is gone, until forget(fd).
  void watch(int fd, Callback ready);
  void watch(zmq::socket_ref socket, Callback ready);
  void forget(int fd);
  void forget(zmq::socket_ref socket);
  /// Calls `ready` whenever `fd` can be written to, or its other end is gone, until forget_writable(fd).
  void watch_writable(int fd, Callback ready);
  void forget_writable(int fd);

  /// Calls `due` once, at `when` or a little later.
  Timer at(Clock::time_point when, Callback due);
  void cancel(Timer timer);

  /// Serves until done() is true (asked after each round) or `deadline` has passed; returns done().
  bool run_until(const std::function<bool()>& done, std::optional<Clock::time_point> deadline = std::nullopt);

  /// Serves what is there already, without waiting.
  void run_once();

 private:
  struct Watched {
    void* socket = nullptr;
    int fd = -1;
    short events = 0;
    std::shared_ptr<Callback> ready;  // null once forgotten
  };
  void watch(void* socket, int fd, short events, Callback ready);
  void forget(void* socket, int fd, short events);
  void poll(std::optional<Clock::time_point> deadline);
  void call_due();

  std::vector<std::shared_ptr<Watched>> watched_;
  struct Due {
    Clock::time_point when;
    Callback call;
  };
  std::map<Timer, Due> timers_;
  Timer next_timer_ = 1;
};

}  // namespace lockstep::shell
