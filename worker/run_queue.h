// The queue in which the I/O thread hands tasks to the run thread, in order.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

#include "protocol/worker_messages.h"

namespace lockstep::worker {

/// A message for the run thread. `frame` is its frame 0, where it has one.
struct Task {
  std::variant<protocol::Prelude, protocol::Load, protocol::Drop, protocol::Run, protocol::Builtin, protocol::Regroup,
               protocol::Configure, protocol::Shutdown>
      what;
  std::string frame;
  int64_t aborts = 0;  // dist::abort_count() when the message came
};

class RunQueue {
 public:
  void push(Task task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    ready_.notify_one();
  }

  Task pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !tasks_.empty(); });
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Task> tasks_;
};

}  // namespace lockstep::worker
