// Calls that other threads hand to an event loop, which makes them on its own thread in the order in which they came.
#pragma once
#include <functional>
#include <mutex>
#include <vector>

#include "protocol/descriptor.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell {

class CallQueue {
 public:
  /// Made and destroyed on the loop's thread. Throws StartError where no descriptor is left.
  explicit CallQueue(EventLoop& loop);
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  /// Any thread may call it. A call that has not been made when the queue is destroyed is never made.
  void post(std::function<void()> call);

 private:
  void make_calls();

  EventLoop& loop_;
  const Descriptor posted_;
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;
};

}  // namespace lockstep::shell
