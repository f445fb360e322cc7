// The fake device as c10 and ATen see it: guard, allocators, generators, hooks; registered before main() runs.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>
#include <cstring>
#include <limits>

#include "tests/support/fake_device/generator.h"
#include "tests/support/fake_device/runtime.h"

namespace lockstep::fake {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

Runtime& runtime() { return Runtime::get(); }

/// An event: the last point at which it was recorded.
using Event = std::shared_ptr<Point>;
const Event& point_of(void* event) { return *static_cast<Event*>(event); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return fake::device(exchange_device(device.index()));
  }
  c10::Device getDevice() const override { return fake::device(current_device()); }
  void setDevice(c10::Device device) const override { exchange_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index() && device.index() < kDevices) exchange_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device device) const override { return current_stream(index_of(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, fake::device(index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return runtime().pool_stream(index_of(device));
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return runtime().new_stream(index_of(device)); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  bool queryStream(const c10::Stream& stream) const override { return runtime().queue_of(stream).idle(); }
  void synchronizeStream(const c10::Stream& stream) const override { runtime().queue_of(stream).wait_for_all(); }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    for (Queue* each : runtime().queues())
      if (each->stream().device_index() == index) each->wait_for_all();
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    *static_cast<Event*>(*event) = runtime().queue_of(stream).add_point();
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event && point_of(event)) runtime().queue_of(stream).add_wait(point_of(event));
  }
  bool queryEvent(void* event) const override {
    return !event || !point_of(event) || point_of(event)->queue->reached(*point_of(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event && point_of(event)) point_of(event)->queue->wait_for(*point_of(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex) const override {
    return static_cast<double>(point_of(end)->time_ns - point_of(begin)->time_ns) * 1e-6;
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    if (memory.get_deleter() == &Runtime::free_memory) Runtime::record_use(memory.get_context(), stream);
  }

 private:
  static int index_of(c10::Device device) { return device.has_index() ? device.index() : current_device(); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_device();
    const auto [data, context] = runtime().allocate(bytes, device);
    return {data, context, &Runtime::free_memory, fake::device(device)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    fake::synchronize();
    default_copy_data(to, from, bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& memory, c10::Stream stream) override {
    Runtime::record_use(memory.get_context(), stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = runtime().in_use(device);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
};

/// Host memory from which copies to the device are queued without waiting. It begins as NaN, so that a result which is
/// read before its copy has run shows.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const size_t size = (bytes + 63) / 64 * 64;
    void* data = bytes > 0 ? std::aligned_alloc(64, size) : nullptr;
    if (data) {
      std::memset(data, 0xff, size);
      const std::lock_guard lock(mutex_);
      ends_[data] = static_cast<char*>(data) + size;
    }
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool holds(const void* address) const {
    const std::lock_guard lock(mutex_);
    auto after = ends_.upper_bound(const_cast<void*>(address));
    return after != ends_.begin() && address < (--after)->second;
  }
  static PinnedAllocator& get() {
    static auto* only = new PinnedAllocator;
    return *only;
  }

 private:
  static void free_pinned(void* data) {
    if (!data) return;
    {
      const std::lock_guard lock(get().mutex_);
      get().ends_.erase(data);
    }
    std::free(data);
  }
  mutable std::mutex mutex_;
  std::map<void*, char*> ends_;
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(c10::DeviceIndex index) const override { exchange_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return static_cast<c10::DeviceIndex>(exchange_device(index));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::get().holds(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator::get(); }
  at::Device getDeviceFromPtr(void*) const override { return fake::device(current_device()); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index < 0 ? current_device() : index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<FakeGenerator>(fake::device(index < 0 ? current_device() : index));
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

struct Registration {
  Registration() {
    c10::register_privateuse1_backend("fake");
    c10::SetAllocator(kType, new Allocator);
    at::RegisterPrivateUse1HooksInterface(new Hooks);
  }
};
const Registration registration;

}  // namespace

const at::Generator& default_generator(int device) {
  static const auto* all = [] {
    auto* made = new std::vector<at::Generator>;
    for (int i = 0; i < kDevices; ++i) made->push_back(at::make_generator<FakeGenerator>(fake::device(i)));
    return made;
  }();
  return all->at(static_cast<size_t>(device));
}

}  // namespace lockstep::fake
