#include "collectives/transport/shared_memory/call_queue.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "collectives/transport/shared_memory/shared_region.h"
#include "protocol/blocked_signals.h"

namespace lockstep::dist {

QueuedWork::QueuedWork(c10d::OpType type, std::shared_ptr<CallQueue> queue, std::vector<at::Tensor> results,
                       std::function<void()> run)
    : c10d::Work(-1, type),
      queue_(std::move(queue)),
      results_(std::move(results)),
      run_(std::move(run)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

bool QueuedWork::isCompleted() {
  if (Work::isCompleted()) return true;
  queue_->start();
  return false;
}

bool QueuedWork::wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout) {
    queue_->run_until(*this);
  } else {
    queue_->start();  // what runs here could not be left at the limit
  }
  return Work::wait(timeout);
}

c10::intrusive_ptr<c10::ivalue::Future> QueuedWork::getFuture() {
  if (!future_->completed()) queue_->start();
  return future_;
}

std::exception_ptr QueuedWork::run(std::exception_ptr failed) {
  if (!failed) {
    try {
      run_();
    } catch (...) {  // for all who wait for it
      failed = std::current_exception();
    }
  }
  run_ = {};  // with the tensors
  return failed;
}

// Those who wait for the work find what the future has called to be done, as on Gloo.
void QueuedWork::complete(std::exception_ptr error) {
  try {
    if (error)
      future_->setError(error);
    else
      future_->markCompleted(results_);
  } catch (...) {  // a callback's, which those who wait get
    if (!error) error = std::current_exception();
  }
  finish(std::move(error));
}

void CallQueue::add(WorkPtr work, bool waits_at_once) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  if (!waits_at_once) start();
}

void CallQueue::start() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty() || started_ || closed_) return;
  started_ = true;
  if (!running_) wake_thread();  // whoever runs a call does this afterwards
}

void CallQueue::wake_thread() {
  if (idle_ == 0) {
    const BlockedSignals signals;  // they are for the threads of the program
    try {
      threads_.emplace_back([self = shared_from_this()] { self->serve(); });
      ++idle_;  // also before it runs, so that no more than needed are made
    } catch (const std::system_error&) {  // the system has no more threads
      if (threads_.empty()) started_ = false;  // those who wait run the calls; other threads would come back
    }
  }
  to_run_.notify_one();
}

void CallQueue::serve() {
  pthread_setname_np(pthread_self(), "lockstep-shared");
  std::unique_lock lock(mutex_);
  for (;;) {
    to_run_.wait(lock, [&] { return closed_ || (started_ && !running_); });
    --idle_;
    if (closed_) return;
    if (queue_.empty())
      started_ = false;
    else
      run_first(lock);
    ++idle_;
  }
}

void CallQueue::run_until(QueuedWork& work) {
  std::unique_lock lock(mutex_);
  while (!work.Work::isCompleted()) {
    if (running_ || queue_.empty())
      ended_.wait(lock);
    else
      run_first(lock);
  }
}

// The next call may begin before those who wait for the future of this one are called.
void CallQueue::run_first(std::unique_lock<std::mutex>& lock) {
  WorkPtr work = std::move(queue_.front());
  queue_.pop_front();
  running_ = true;
  const std::exception_ptr failed = failed_;
  lock.unlock();
  const std::exception_ptr error = work->run(failed);
  lock.lock();
  if (!failed_) failed_ = error;
  running_ = false;
  if (queue_.empty())
    started_ = false;  // its threads may sleep, having found this one at work
  else if (started_)
    wake_thread();  // this one goes on to callbacks, which may wait for a call that is in the queue
  ended_.notify_all();
  lock.unlock();
  work->complete(error);
  work.reset();
  lock.lock();
  ended_.notify_all();
}

void CallQueue::close(const std::function<void()>& interrupt) {
  if (getpid() != process_) {  // it has no threads there, and the mutex may be held for ever
    for (std::thread& thread : threads_) thread.detach();
    return;
  }
  std::vector<std::thread> threads;
  {
    std::unique_lock lock(mutex_);
    if (running_ || !queue_.empty()) interrupt();
    started_ = false;  // this thread runs what is left, which fails
    ended_.wait(lock, [&] { return !running_; });
    if (!failed_) failed_ = std::make_exception_ptr(SharedMemoryError("the group was closed"));
    while (!queue_.empty()) run_first(lock);
    closed_ = true;
    threads = std::move(threads_);
    to_run_.notify_all();
  }
  // A callback that lets go of the group is on one of the threads: they end when their callbacks return.
  const bool is_in_callback =
      std::ranges::any_of(threads, [](const std::thread& each) { return each.get_id() == std::this_thread::get_id(); });
  for (std::thread& thread : threads) {
    if (is_in_callback)
      thread.detach();
    else
      thread.join();
  }
}

}  // namespace lockstep::dist
