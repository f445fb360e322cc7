// Reports what the session does while that takes long (ActivityEvent): first kPatience after it began, then once every
// kPeriod. Where events come that people see, the report is taken back, and comes again when there have been none for
// kQuiet.
//
// It stands between the session and its front end, so that it sees all events.
#pragma once
#include <chrono>
#include <functional>
#include <optional>

#include "shell/events/event.h"
#include "shell/processes/deadline.h"

namespace lockstep::shell {

class ActivityReporter : public EventSink {
 public:
  static constexpr std::chrono::milliseconds kPatience{1000}, kPeriod{1000}, kQuiet{2000};

  explicit ActivityReporter(EventSink& front_end) : front_end_(front_end) {}

  /// Returns what the session does; nothing where there is nothing to report.
  using Look = std::function<std::optional<ActivityEvent>()>;
  /// Reports from now on, until stop().
  void start(EventLoop& loop, Look look);
  void stop() { timer_.reset(); }

  /// Lives while something runs that may take long; may be nested.
  class Scope {
   public:
    explicit Scope(ActivityReporter& reporter) : reporter_(reporter) { reporter_.begin(); }
    ~Scope() { reporter_.end(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ActivityReporter& reporter_;
  };

  void take(const Event& event) override;

 private:
  void begin();
  void end();
  void look_after(std::chrono::milliseconds time);
  void take_back();

  EventSink& front_end_;
  Look look_;
  std::optional<Deadline> timer_;
  int depth_ = 0;
  bool is_shown_ = false;
};

}  // namespace lockstep::shell
