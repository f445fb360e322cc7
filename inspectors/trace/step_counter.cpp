#include "inspectors/trace/step_counter.h"

#include "collectives/watch/collective_listener.h"
#include "inspectors/trace/steps.h"

namespace lockstep::inspect {

const std::shared_ptr<StepCounter>& StepCounter::of_this_thread() {
  static thread_local const std::shared_ptr<StepCounter> counter = std::make_shared<StepCounter>();
  return counter;
}

void StepCounter::count_one() {
  if (paused()) return;
  ++count_;
  for (const auto& each : observers()) each->step_counted(count_);
}

std::vector<std::shared_ptr<StepObserver>> StepCounter::observers() const {
  std::vector<std::shared_ptr<StepObserver>> result;
  for (const auto& each : observers_)
    if (auto observer = each.lock()) result.push_back(std::move(observer));
  return result;
}

void StepCounter::add(const std::shared_ptr<StepObserver>& observer) {
  observers_.push_back(observer);
  dist::set_collective_listener([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    for (const auto& each : self->observers()) each->collective_begins();
  });
}

void StepCounter::remove(const StepObserver& observer) {
  std::erase_if(observers_, [&](const auto& each) {
    const auto kept = each.lock();
    return !kept || kept.get() == &observer;
  });
  if (observers_.empty() && of_this_thread().get() == this) dist::set_collective_listener({});
}

void count_step() { StepCounter::of_this_thread()->count_one(); }
int64_t counted_steps() { return StepCounter::of_this_thread()->count(); }

UncountedSteps::UncountedSteps() { StepCounter::of_this_thread()->pause(); }
UncountedSteps::~UncountedSteps() { StepCounter::of_this_thread()->resume(); }

}  // namespace lockstep::inspect
