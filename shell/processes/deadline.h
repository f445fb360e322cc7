// A moment that its owner waits for in the event loop, at most one at a time. Cancelled when it is destroyed.
#pragma once
#include <optional>
#include <utility>

#include "shell/processes/event_loop.h"

namespace lockstep::shell {

class Deadline {
 public:
  explicit Deadline(EventLoop& loop) : loop_(loop) {}
  ~Deadline() { cancel(); }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  /// Calls `due` once, at `when` or a little later, instead of what was set before. `due` may set it again.
  void set(EventLoop::Clock::time_point when, EventLoop::Callback due) {
    cancel();
    timer_ = loop_.at(when, [this, due = std::move(due)] {
      timer_.reset();
      due();
    });
  }
  void set_after(EventLoop::Clock::duration time, EventLoop::Callback due) {
    set(EventLoop::Clock::now() + time, std::move(due));
  }
  void cancel() {
    if (const auto timer = std::exchange(timer_, std::nullopt)) loop_.cancel(*timer);
  }
  /// Has `merger` let go of what it holds back whenever that is due.
  template <typename Merger>
  void serve(Merger& merger) {
    if (is_set()) return;
    if (const auto when = merger.deadline())
      set(*when, [this, &merger] {
        merger.due(EventLoop::Clock::now());
        serve(merger);
      });
  }
  bool is_set() const { return timer_.has_value(); }

 private:
  EventLoop& loop_;
  std::optional<EventLoop::Timer> timer_;
};

}  // namespace lockstep::shell
