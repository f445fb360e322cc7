#include "shell/session/activity.h"

#include <utility>

namespace lockstep::shell {

void ActivityReporter::start(EventLoop& loop, Look look) {
  look_ = std::move(look);
  timer_.emplace(loop);
}

void ActivityReporter::begin() {
  if (depth_++ == 0) look_after(kPatience);
}

void ActivityReporter::end() {
  if (--depth_ > 0) return;
  if (timer_) timer_->cancel();
  take_back();
}

void ActivityReporter::look_after(std::chrono::milliseconds time) {
  if (!timer_) return;
  timer_->set_after(time, [this] {
    if (const auto activity = look_()) {
      is_shown_ = true;
      front_end_.take(*activity);
    } else {
      take_back();
    }
    look_after(kPeriod);
  });
}

void ActivityReporter::take_back() {
  if (std::exchange(is_shown_, false)) front_end_.take(ActivityEvent{});
}

void ActivityReporter::take(const Event& event) {
  take_back();
  front_end_.take(event);
  if (depth_ > 0) look_after(kQuiet);
}

}  // namespace lockstep::shell
