// Decides the steps that get ranks out of a cell: when the user wants it, and when a time limit has passed. Pure:
// requests and deadlines in, the next step out. cell_stopper.h takes the steps.
//
//   user:   none ──→ interrupted ──→ offered ──→ ended        one Ctrl-C each; people are reminded of the next. A key
//           that is held down is one Ctrl-C, and the offer stands for a while before it can be taken
//   limit:  none ──→ interrupted ──→ aborted ──→ ended        a deadline each
#pragma once
#include <chrono>
#include <optional>

namespace lockstep::shell {

enum class StopStep {
  nothing,
  interrupt,
  remind,  // people hear that ranks have not come back, and that Ctrl-C again offers to end them
  offer,  // interrupt once more; people hear that another Ctrl-C ends the ranks, and what is lost then
  abort,  // free the ranks from collectives
  end  // kill the ranks
};

/// Counts Ctrl-C, pressed again and again.
class UserStop {
 public:
  enum class Phase { none, interrupted, offered, ended };
  using Clock = std::chrono::steady_clock;
  /// A Ctrl-C that follows the one before it sooner is the same key, held down.
  static constexpr std::chrono::milliseconds kRepeat{250};
  /// The offer to end ranks has to be on the screen so long before it can be taken.
  static constexpr std::chrono::milliseconds kReading{1000};
  /// Ranks may take so long to come back from an interrupt until people are reminded.
  static constexpr std::chrono::milliseconds kPatience{2000};

  Phase phase() const { return phase_; }
  /// Begins a new cell.
  void begin() { *this = {}; }
  /// Takes a Ctrl-C.
  StopStep requested(Clock::time_point now);
  /// Called when kPatience has passed since the interrupt.
  StopStep patience_is_over() const;

 private:
  Phase phase_ = Phase::none;
  std::optional<Clock::time_point> pressed_, offered_;
};

/// Limits the time of a cell.
class LimitStop {
 public:
  enum class Phase { none, interrupted, aborted, ended };

  Phase phase() const { return phase_; }
  /// Begins a new cell.
  void begin() { phase_ = Phase::none; }
  /// Called when the limit, or the time of the step before, has passed.
  StopStep time_is_over();
  /// Makes the end the next step: an interrupt and an abort have been sent by others.
  void skip_to_end() { phase_ = Phase::aborted; }
  /// Returns how long ranks may take until the next step; nothing before the first step and after the last.
  std::optional<std::chrono::milliseconds> patience() const;

 private:
  Phase phase_ = Phase::none;
};

}  // namespace lockstep::shell
