// Generators of the fake device. As on a GPU, the host advances the generator when an operation is queued; the
// operation has all it needs with it.
#pragma once
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <mutex>

namespace lockstep::fake {

class FakeGenerator final : public c10::GeneratorImpl {
 public:
  explicit FakeGenerator(c10::Device device)
      : c10::GeneratorImpl(device, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  /// A generator on the CPU for one operation.
  at::Generator for_operation() {
    const std::lock_guard lock(mutex_);
    return at::detail::createCPUGenerator(state_.random64());
  }

  void set_current_seed(uint64_t seed) override { state_.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { state_.set_offset(offset); }
  uint64_t get_offset() const override { return state_.get_offset(); }
  uint64_t current_seed() const override { return state_.current_seed(); }
  uint64_t seed() override { return state_.seed(); }
  void set_state(const c10::TensorImpl& state) override { state_.set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return state_.get_state(); }

 private:
  FakeGenerator* clone_impl() const override {
    auto* copy = new FakeGenerator(device());
    copy->state_.set_state(*state_.get_state());
    return copy;
  }
  at::CPUGeneratorImpl state_;
};

const at::Generator& default_generator(int device);

/// Gives `storage` another size; its bytes are copied on the current stream.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace lockstep::fake
