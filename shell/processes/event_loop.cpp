#include "shell/processes/event_loop.h"

#include <algorithm>
#include <cerrno>

#include "protocol/error.h"

namespace lockstep::shell {

void EventLoop::watch(int fd, Callback ready) { watch(nullptr, fd, ZMQ_POLLIN, std::move(ready)); }
void EventLoop::watch(zmq::socket_ref socket, Callback ready) {
  watch(socket.handle(), -1, ZMQ_POLLIN, std::move(ready));
}
void EventLoop::watch_writable(int fd, Callback ready) { watch(nullptr, fd, ZMQ_POLLOUT, std::move(ready)); }

void EventLoop::forget(int fd) { forget(nullptr, fd, ZMQ_POLLIN); }
void EventLoop::forget(zmq::socket_ref socket) { forget(socket.handle(), -1, ZMQ_POLLIN); }
void EventLoop::forget_writable(int fd) { forget(nullptr, fd, ZMQ_POLLOUT); }

void EventLoop::watch(void* socket, int fd, short events, Callback ready) {
  watched_.push_back(std::make_shared<Watched>(socket, fd, events, std::make_shared<Callback>(std::move(ready))));
}

void EventLoop::forget(void* socket, int fd, short events) {
  std::erase_if(watched_, [&](const auto& w) {
    const bool match = w->socket == socket && w->fd == fd && w->events == events;
    // A round that is under way holds its own list: the callback must not be called any more.
    if (match) w->ready.reset();
    return match;
  });
}

EventLoop::Timer EventLoop::at(Clock::time_point when, Callback due) {
  timers_.emplace(next_timer_, Due{when, std::move(due)});
  return next_timer_++;
}

void EventLoop::cancel(Timer timer) { timers_.erase(timer); }

bool EventLoop::run_until(const std::function<bool()>& done, std::optional<Clock::time_point> deadline) {
  while (!done()) {
    if (deadline && Clock::now() >= *deadline) return false;
    poll(deadline);
    call_due();
  }
  return true;
}

void EventLoop::run_once() {
  poll(Clock::now());
  call_due();
}

void EventLoop::poll(std::optional<Clock::time_point> deadline) {
  for (const auto& [timer, due] : timers_)
    if (!deadline || due.when < *deadline) deadline = due.when;
  long timeout_ms = -1;
  if (deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
    timeout_ms = std::max<long>(0, left);
  }

  const auto round = watched_;
  std::vector<zmq_pollitem_t> items;
  items.reserve(round.size());
  for (const auto& w : round) items.push_back({w->socket, w->fd, w->events, 0});
  const int n = zmq_poll(items.data(), static_cast<int>(items.size()), timeout_ms);
  if (n < 0 && errno != EINTR)
    throw ChannelError(std::string("waiting for the session's processes failed: ") + zmq_strerror(errno));
  if (n <= 0) return;
  for (size_t i = 0; i < items.size(); ++i)
    if (items[i].revents != 0)
      if (const auto ready = round[i]->ready) (*ready)();
}

void EventLoop::call_due() {
  const auto now = Clock::now();
  std::vector<Timer> due;
  for (const auto& [timer, entry] : timers_)
    if (entry.when <= now) due.push_back(timer);
  for (Timer timer : due) {
    const auto found = timers_.find(timer);
    if (found == timers_.end()) continue;
    const Callback call = std::move(found->second.call);
    timers_.erase(found);
    call();
  }
}

}  // namespace lockstep::shell
