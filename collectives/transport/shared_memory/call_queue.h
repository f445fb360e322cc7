// The collectives of one group that this rank has called, and not done yet. They run one after the other, in the order
// of the calls: on a thread of the queue, or on the thread that waits for one of them, which spares two changes of
// threads. What a future calls may wait for other futures, so another thread runs the calls meanwhile.
#pragma once
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace lockstep::dist {

class CallQueue;

class QueuedWork : public c10d::Work {
 public:
  /// `run` does the collective; `results` are what the future gives.
  QueuedWork(c10d::OpType type, std::shared_ptr<CallQueue> queue, std::vector<at::Tensor> results,
             std::function<void()> run);

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  friend class CallQueue;
  /// Does it, unless `failed`, and returns why it has failed.
  std::exception_ptr run(std::exception_ptr failed);
  /// Calls what waits for the future, which may call collectives and wait for them. Then whoever waits for it goes on.
  void complete(std::exception_ptr error);

  const std::shared_ptr<CallQueue> queue_;
  const std::vector<at::Tensor> results_;
  std::function<void()> run_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class CallQueue : public std::enable_shared_from_this<CallQueue> {
 public:
  using WorkPtr = c10::intrusive_ptr<QueuedWork>;

  /// `waits_at_once`: the caller waits for it next, so that it runs there.
  void add(WorkPtr work, bool waits_at_once);
  /// Has a thread of the queue run what is in it.
  void start();
  /// Runs what is in the queue on the calling thread, up to `work`, or waits while another thread runs it.
  void run_until(QueuedWork& work);
  /// Calls that are not done fail from now on; `interrupt` is called where there are any, and must end the one that
  /// runs. Ends the threads. Must be called once. Does nothing in a process that was forked from the queue's.
  void close(const std::function<void()>& interrupt);

 private:
  void serve();
  /// Has a thread of the queue run the first call, where there can be one. With the lock.
  void wake_thread();
  /// `lock` is released while the first of the queue runs.
  void run_first(std::unique_lock<std::mutex>& lock);

  const pid_t process_ = getpid();
  std::mutex mutex_;  // of all below
  std::condition_variable to_run_, ended_;  // for threads of the queue; for threads that wait for a call
  std::deque<WorkPtr> queue_;
  bool running_ = false;  // a thread runs one
  bool started_ = false;  // a thread of the queue is to run what is there
  bool closed_ = false;
  int idle_ = 0;  // threads of the queue that run nothing
  std::exception_ptr failed_;  // the first failure is that of all later calls: the ranks are no longer in step
  // There are none before the first call that nobody waits for at once; then as many as calls run, or have what waits for
  // their futures called, at the same time. They stay, and keep the queue.
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::dist
