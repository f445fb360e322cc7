#include "tests/support/fake_device/runtime.h"

#include <c10/util/Exception.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace lockstep::fake {
namespace {

constexpr size_t kPool = 4;  // side streams of a device, besides the default one
constexpr int kPoison = 0xff;  // a NaN in every floating point type

thread_local int this_device = 0;
thread_local std::array<int64_t, kDevices> this_streams{};  // ids, by device

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

int checked(int index) {
  TORCH_CHECK(index >= 0 && index < kDevices, "there is no device fake:", index, "; there are ", kDevices);
  return index;
}

c10::Stream stream_with(int device, int64_t id) { return c10::Stream(c10::Stream::UNSAFE, fake::device(device), id); }

}  // namespace

// ---- Queue

Queue::Queue(c10::Stream stream) : stream_(stream) {
  std::thread([this] { run(); }).detach();
}

void Queue::add(std::string kind, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(kind), std::move(work)});
    ++queued_;
  }
  changed_.notify_all();
}

std::shared_ptr<Point> Queue::add_point() {
  auto point = std::make_shared<Point>();
  point->queue = this;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({"", [point] { point->time_ns = now_ns(); }});
    point->ticket = ++queued_;
  }
  changed_.notify_all();
  return point;
}

void Queue::add_wait(std::shared_ptr<Point> point) {
  if (point->queue == this) return;  // before it in the same queue
  add("", [point = std::move(point)] {
    point->queue->demand(point->ticket);
    point->queue->wait_until_done(point->ticket);
  });
}

bool Queue::reached(const Point& point) const {
  const std::lock_guard lock(mutex_);
  return done_ >= point.ticket;
}

bool Queue::idle() const {
  const std::lock_guard lock(mutex_);
  return done_ == queued_;
}

void Queue::wait_for(const Point& point) {
  if (reached(point)) return;
  Runtime::get().count_host_wait();
  demand(point.ticket);
  wait_until_done(point.ticket);
}

void Queue::wait_for_all() {
  Runtime::get().count_host_wait();
  uint64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = queued_;
  }
  demand(last);
  wait_until_done(last);
}

void Queue::demand(uint64_t ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (demanded_ >= ticket) return;
    demanded_ = ticket;
  }
  changed_.notify_all();
}

void Queue::demand_all() {
  uint64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = queued_;
  }
  demand(last);
}

void Queue::wake() { changed_.notify_all(); }

void Queue::wait_until_done(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= ticket; });
}

void Queue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] {
      return !tasks_.empty() && (Runtime::get().options().schedule == Schedule::eager || done_ < demanded_);
    });
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    if (!task.kind.empty()) {
      const auto& delays = Runtime::get().options().delays;
      auto delay = delays.find(task.kind);
      if (delay == delays.end()) delay = delays.find("*");
      if (delay != delays.end()) std::this_thread::sleep_for(delay->second);
    }
    try {
      task.work();
    } catch (...) {  // thrown by fake::synchronize()
      Runtime::get().keep_error(std::current_exception());
    }
    task = {};
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

// ---- Runtime

struct Runtime::Block {
  void* data = nullptr;
  size_t bytes = 0;
  int device = 0;
  Queue* owner = nullptr;
  std::vector<Queue*> used_by;
};

Runtime::Runtime() : queues_(kDevices), next_in_pool_(kDevices, 0), in_use_(kDevices, 0) {}

Runtime& Runtime::get() {
  static Runtime* only = new Runtime;
  return *only;
}

Queue& Runtime::queue_of(c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  auto& queues = queues_[static_cast<size_t>(checked(stream.device_index()))];
  const auto id = static_cast<size_t>(stream.id());
  while (queues.size() <= std::max(id, kPool)) queues.push_back(nullptr);
  if (!queues[id]) queues[id] = std::make_unique<Queue>(stream);
  return *queues[id];
}

c10::Stream Runtime::pool_stream(int device) {
  const std::lock_guard lock(mutex_);
  return stream_with(device, static_cast<int64_t>(next_in_pool_[static_cast<size_t>(checked(device))]++ % kPool) + 1);
}

c10::Stream Runtime::new_stream(int device) {
  const std::lock_guard lock(mutex_);
  auto& queues = queues_[static_cast<size_t>(checked(device))];
  while (queues.size() <= kPool) queues.push_back(nullptr);
  const c10::Stream stream = stream_with(device, static_cast<int64_t>(queues.size()));
  queues.push_back(std::make_unique<Queue>(stream));
  return stream;
}

std::vector<Queue*> Runtime::queues() {
  const std::lock_guard lock(mutex_);
  std::vector<Queue*> all;
  for (const auto& of_device : queues_)
    for (const auto& each : of_device)
      if (each) all.push_back(each.get());
  return all;
}

void Runtime::set_options(Options options) {
  options_ = std::move(options);
  for (Queue* each : queues()) each->wake();
}

void Runtime::keep_error(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
}

std::exception_ptr Runtime::take_error() {
  const std::lock_guard lock(mutex_);
  return std::exchange(error_, nullptr);
}

std::pair<void*, void*> Runtime::allocate(size_t bytes, int device) {
  if (bytes == 0) return {nullptr, nullptr};
  const size_t size = (bytes + 63) / 64 * 64;
  Queue& owner = queue_of(current_stream(device));
  Block* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& free = free_blocks_[{device, size}];
    if (!free.empty()) {
      block = free.back();
      free.pop_back();
    }
    in_use_[static_cast<size_t>(device)] += static_cast<int64_t>(size);
  }
  if (!block) {
    block = new Block{.data = std::aligned_alloc(64, size), .bytes = size, .device = device};
    TORCH_CHECK(block->data, "no host memory for ", size, " bytes of fake:", device);
    if (options_.poison) std::memset(block->data, kPoison, size);
  }
  block->owner = &owner;
  block->used_by.clear();
  return {block->data, block};
}

void Runtime::free_memory(void* context) {
  auto* block = static_cast<Block*>(context);
  if (!block) return;
  Runtime& runtime = get();
  std::vector<Queue*> users;
  {
    const std::lock_guard lock(runtime.mutex_);
    users = block->used_by;
    runtime.in_use_[static_cast<size_t>(block->device)] -= static_cast<int64_t>(block->bytes);
  }
  users.push_back(block->owner);
  const auto left = std::make_shared<std::atomic<size_t>>(users.size());
  for (Queue* each : users)
    each->add("", [left, block] {
      if (--*left == 0) get().give_back(block);
    });
  // The owner's queue is in order, so the memory is free as soon as it gets here; that is now.
  if (runtime.options().poison) block->owner->demand_all();
}

void Runtime::give_back(Block* block) {
  if (options_.poison) std::memset(block->data, kPoison, block->bytes);
  const std::lock_guard lock(mutex_);
  free_blocks_[{block->device, block->bytes}].push_back(block);
}

void Runtime::record_use(void* context, c10::Stream stream) {
  auto* block = static_cast<Block*>(context);
  if (!block) return;
  Queue& queue = get().queue_of(stream);
  const std::lock_guard lock(get().mutex_);
  if (&queue == block->owner) return;
  for (const Queue* each : block->used_by)
    if (each == &queue) return;
  block->used_by.push_back(&queue);
}

int64_t Runtime::in_use(int device) const {
  const std::lock_guard lock(mutex_);
  return in_use_[static_cast<size_t>(checked(device))];
}

// ---- of the thread

int current_device() { return this_device; }

int exchange_device(int index) { return std::exchange(this_device, checked(index)); }

c10::Stream current_stream(int device) {
  return stream_with(device, this_streams[static_cast<size_t>(checked(device))]);
}

c10::Stream exchange_stream(c10::Stream stream) {
  const int index = checked(stream.device_index());
  return stream_with(index, std::exchange(this_streams[static_cast<size_t>(index)], stream.id()));
}

// ---- what tests use

c10::Device device(int index) {
  return c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index));
}

int64_t host_waits() { return Runtime::get().host_waits(); }

void synchronize() {
  // Work of one stream may wait for another one, and freed memory is queued meanwhile: until nothing is left.
  for (bool idle = false; !idle;) {
    idle = true;
    for (Queue* each : Runtime::get().queues()) {
      if (each->idle()) continue;
      each->wait_for_all();
      idle = false;
    }
  }
  if (const std::exception_ptr error = Runtime::get().take_error()) std::rethrow_exception(error);
}

Scope::Scope(Options options) {
  synchronize();
  Runtime::get().set_options(std::move(options));
}

Scope::~Scope() {
  try {
    synchronize();
  } catch (const std::exception& error) {  // a destructor does not throw
    TORCH_WARN("an operation of the fake device failed: ", error.what());
  }
  Runtime::get().set_options({});
}

struct Hold::Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
};

Hold::Hold(c10::Stream stream) : gate_(std::make_shared<Gate>()) {
  Runtime::get().queue_of(stream).add("", [gate = gate_] {
    std::unique_lock lock(gate->mutex);
    gate->changed.wait(lock, [&] { return gate->open; });
  });
}

void Hold::release() {
  if (!gate_) return;
  {
    const std::lock_guard lock(gate_->mutex);
    gate_->open = true;
  }
  gate_->changed.notify_all();
}

}  // namespace lockstep::fake
