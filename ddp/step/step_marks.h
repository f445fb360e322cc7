// Marks points of the last synchronised step in the work of a device, while an inspector has asked for them.
#pragma once
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <optional>

namespace lockstep::ddp {

/// Events that were not recorded are null. They can be asked for times when the device has reached them.
struct StepMarks {
  std::optional<c10::Event> forward_end;
  std::optional<c10::Event> backward_end;  // all gradients; not the reductions that wait for them
};

namespace detail {

/// Each wrapper has one. Backward may run on another thread than forward, but not at the same time.
class StepMarkRecorder {
 public:
  bool on() const { return on_; }
  void turn_on() { on_ = true; }

  void forward_ends(c10::Device device) {
    if (!on_ || device.is_cpu()) return;
    marks_.backward_end.reset();
    record(marks_.forward_end, device);
  }
  void backward_ends(c10::Device device) {
    if (on_ && !device.is_cpu() && !marks_.backward_end) record(marks_.backward_end, device);
  }
  const StepMarks& marks() const { return marks_; }

 private:
  static void record(std::optional<c10::Event>& event, c10::Device device) {
    event.reset();
    event.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  bool on_ = false;
  StepMarks marks_;
};

}  // namespace detail
}  // namespace lockstep::ddp
