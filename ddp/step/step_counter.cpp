#include "ddp/step/step_counter.h"

#include <utility>

namespace lockstep::ddp::detail {

void StepCounter::set(int64_t count) {
  count_ = reported_ = count;
  ranks_may_differ_ = false;
}

void StepCounter::drop_unreported_step() {
  reported_ = count_;
  ranks_may_differ_ = true;
}

void StepCounter::agree(const std::function<int64_t(int64_t)>& least) {
  if (!ranks_may_differ_) return;
  const int64_t unreported = count_ - reported_;
  count_ = least(count_);
  reported_ = count_ - unreported;
  ranks_may_differ_ = false;
}

std::shared_ptr<const void> StepCounter::listen(Listener listener) {
  auto kept = std::make_shared<const Listener>(std::move(listener));
  listeners_.push_back(kept);
  return kept;
}

void StepCounter::report() {
  if (reported_ == count_) return;
  reported_ = count_;
  std::erase_if(listeners_, [](const auto& each) { return each.expired(); });
  for (const auto& each : std::vector(listeners_))  // a copy: a listener may add another
    if (const auto listener = each.lock()) (*listener)();
}

}  // namespace lockstep::ddp::detail
