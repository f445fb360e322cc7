#include "shell/cells/stop_machines.h"

namespace lockstep::shell {

using std::chrono::milliseconds;

StopStep UserStop::requested(Clock::time_point now) {
  const bool repeated = pressed_ && now - *pressed_ < kRepeat;
  pressed_ = now;
  if (repeated) return StopStep::nothing;
  switch (phase_) {
    case Phase::none:
      phase_ = Phase::interrupted;
      return StopStep::interrupt;
    case Phase::interrupted:
      phase_ = Phase::offered;
      offered_ = now;
      return StopStep::offer;
    case Phase::offered:
      if (now - *offered_ < kReading) return StopStep::nothing;
      phase_ = Phase::ended;
      return StopStep::end;
    case Phase::ended:
      return StopStep::end;
  }
  return StopStep::nothing;
}

StopStep UserStop::patience_is_over() const {
  return phase_ == Phase::interrupted ? StopStep::remind : StopStep::nothing;
}

StopStep LimitStop::time_is_over() {
  switch (phase_) {
    case Phase::none:
      phase_ = Phase::interrupted;
      return StopStep::interrupt;
    case Phase::interrupted:
      phase_ = Phase::aborted;
      return StopStep::abort;
    case Phase::aborted:
    case Phase::ended:
      phase_ = Phase::ended;
      return StopStep::end;
  }
  return StopStep::nothing;
}

std::optional<milliseconds> LimitStop::patience() const {
  switch (phase_) {
    case Phase::interrupted:
      return milliseconds(2000);
    case Phase::aborted:
      return milliseconds(3000);
    case Phase::none:
    case Phase::ended:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace lockstep::shell
