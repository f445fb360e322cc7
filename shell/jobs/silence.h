// The time in which a peer has sent nothing, without the time in which this process has not looked for messages. Pure:
// times come in as arguments.
#pragma once
#include <chrono>

namespace lockstep::shell {

class Silence {
 public:
  using Clock = std::chrono::steady_clock;

  /// `every`: the time between two looks of a process that runs. What is longer does not count as silence.
  Silence(Clock::time_point now, Clock::duration every) : every_(every), heard_at_(now), looked_at_(now) {}

  /// Notes that this process looks for messages now.
  void look(Clock::time_point now) {
    if (const auto unseen = now - looked_at_; unseen > every_) heard_at_ += unseen - every_;
    looked_at_ = now;
  }
  /// Notes that the last look has found a message.
  void end() { heard_at_ = looked_at_; }
  Clock::duration length() const { return looked_at_ - heard_at_; }

 private:
  Clock::duration every_;
  Clock::time_point heard_at_, looked_at_;
};

}  // namespace lockstep::shell
