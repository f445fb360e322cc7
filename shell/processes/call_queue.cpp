#include "shell/processes/call_queue.h"

#include <utility>

#include "protocol/error.h"

namespace lockstep::shell {

CallQueue::CallQueue(EventLoop& loop) : loop_(loop), posted_(make_event()) {
  if (!posted_) throw StartError("no descriptor is left for calls between threads (ulimit -n)");
  loop_.watch(posted_.get(), [this] { make_calls(); });
}

CallQueue::~CallQueue() { loop_.forget(posted_.get()); }

void CallQueue::post(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(call));
  set_event(posted_.get());
}

void CallQueue::make_calls() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    take_event(posted_.get());
    calls.swap(calls_);
  }
  for (const auto& call : calls) call();
}

}  // namespace lockstep::shell
