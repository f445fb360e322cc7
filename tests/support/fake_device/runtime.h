// The streams, events and memory of the fake device, below LibTorch's interfaces.
#pragma once
#include <c10/core/Stream.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_device/fake_device.h"

namespace lockstep::fake {

class Queue;

/// A point in a queue: what an event is recorded at.
struct Point {
  Queue* queue = nullptr;
  uint64_t ticket = 0;
  std::atomic<int64_t> time_ns = 0;  // when it was reached; 0: not yet
};

/// One stream. Its thread lives as long as the program.
class Queue {
 public:
  explicit Queue(c10::Stream stream);

  c10::Stream stream() const { return stream_; }
  /// Runs `work` after all that is queued. Its exception is kept for fake::synchronize().
  void add(std::string kind, std::function<void()> work);
  std::shared_ptr<Point> add_point();
  /// What is queued later runs after `point`.
  void add_wait(std::shared_ptr<Point> point);

  bool reached(const Point& point) const;
  bool idle() const;
  /// On a thread of the program.
  void wait_for(const Point& point);
  void wait_for_all();
  /// Under the late schedule the queue runs up to `ticket` from now on.
  void demand(uint64_t ticket);
  void demand_all();
  void wake();

 private:
  struct Task {
    std::string kind;
    std::function<void()> work;
  };
  void run();
  void wait_until_done(uint64_t ticket);

  const c10::Stream stream_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  uint64_t queued_ = 0, done_ = 0, demanded_ = 0;  // tickets
};

/// All devices of the process. Never destroyed, since streams may be used until the process ends.
class Runtime {
 public:
  static Runtime& get();

  Queue& queue_of(c10::Stream stream);
  /// A stream of the pool, in turn, or a new one.
  c10::Stream pool_stream(int device);
  c10::Stream new_stream(int device);
  std::vector<Queue*> queues();

  const Options& options() const { return options_; }
  void set_options(Options options);

  void count_host_wait() { ++host_waits_; }
  int64_t host_waits() const { return host_waits_; }
  void keep_error(std::exception_ptr error);
  std::exception_ptr take_error();

  /// Memory for the current stream of `device`; aligned to 64 bytes. The context is what free_memory and record_use
  /// take.
  std::pair<void*, void*> allocate(size_t bytes, int device);
  static void free_memory(void* context);
  static void record_use(void* context, c10::Stream stream);
  /// Of `device`, in bytes.
  int64_t in_use(int device) const;

 private:
  struct Block;
  Runtime();
  void give_back(Block* block);

  mutable std::mutex mutex_;
  std::vector<std::vector<std::unique_ptr<Queue>>> queues_;  // by device
  std::vector<size_t> next_in_pool_;
  Options options_;
  std::atomic<int64_t> host_waits_ = 0;
  std::exception_ptr error_;
  std::map<std::pair<int, size_t>, std::vector<Block*>> free_blocks_;
  std::vector<int64_t> in_use_;
};

/// The calling thread's device and streams.
int current_device();
int exchange_device(int index);
c10::Stream exchange_stream(c10::Stream stream);

}  // namespace lockstep::fake
