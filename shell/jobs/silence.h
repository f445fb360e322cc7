// How long somebody has said nothing although his words were looked for. Pure: times come in as arguments.
#pragma once
#include <chrono>

namespace lockstep::shell {

class Silence {
 public:
  using Clock = std::chrono::steady_clock;

  /// `every`: words are looked for as often as this. A longer time between two looks is nobody's silence.
  Silence(Clock::time_point now, Clock::duration every) : every_(every), heard_at_(now), looked_at_(now) {}

  /// Notes that words are looked for now.
  void look(Clock::time_point now) {
    if (const auto unseen = now - looked_at_; unseen > every_) heard_at_ += unseen - every_;
    looked_at_ = now;
  }
  /// Notes that the last look found some.
  void end() { heard_at_ = looked_at_; }
  Clock::duration length() const { return looked_at_ - heard_at_; }

 private:
  Clock::duration every_;
  Clock::time_point heard_at_, looked_at_;
};

}  // namespace lockstep::shell
