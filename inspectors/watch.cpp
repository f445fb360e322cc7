#include "inspectors/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace lockstep::inspect {

/// What a thread has counted, and the watches on it. Watches share it: one at namespace scope outlives the thread's own.
struct Watch::Steps {
  int64_t count = 0;
  int uncounted = 0;  // scopes that are open
  std::vector<Watch*> watches;

  static const std::shared_ptr<Steps>& here() {
    static thread_local const std::shared_ptr<Steps> steps = std::make_shared<Steps>();
    return steps;
  }
};

struct Watch::State {
  std::shared_ptr<Steps> steps = Steps::here();
  std::function<Subject()> subject;
  int64_t every = 1;
  VerifyOptions options;
  int64_t equal_at = 0;  // the last step at which the replicas were
  bool told = false;
  WatchCost cost;

  void check(int64_t step) {
    Report report = verify_subject(subject(), VerifyOptions(options).publish(false).step(step));
    ++cost.checks;
    cost.seconds += report.seconds;
    if (report.ok()) {
      equal_at = step;
      told = false;
      return;
    }
    if (told) return;
    told = true;
    for (Finding& each : report.findings) {
      if (each.severity != Severity::fault) continue;
      each.step = step;
      each.message += fmt::format("; equal at step {}, not at step {}", equal_at, step);
    }
    publish_as_speaker(options, report);
  }
};

Watch::Watch(std::function<Subject()> subject, int64_t every, VerifyOptions options)
    : state_(std::make_shared<State>()) {
  if (every < 1) throw std::invalid_argument(fmt::format("inspect::watch: every {} steps? It takes 1 or more", every));
  state_->subject = std::move(subject);
  state_->every = every;
  state_->options = std::move(options);
  state_->equal_at = state_->steps->count;
  state_->steps->watches.push_back(this);
}

Watch::Watch(Watch&& other) noexcept : state_(std::move(other.state_)) {
  std::vector<Watch*>& watches = state_->steps->watches;
  std::replace(watches.begin(), watches.end(), &other, this);
}

Watch::~Watch() {
  if (state_) std::erase(state_->steps->watches, this);
}

WatchCost Watch::cost() const { return state_->cost; }

void count_step() {
  Watch::Steps& steps = *Watch::Steps::here();
  if (steps.uncounted > 0) return;
  const int64_t step = ++steps.count;
  for (const Watch* each : std::vector<Watch*>(steps.watches))
    if (step % each->state_->every == 0) each->state_->check(step);
}

UncountedSteps::UncountedSteps() { ++Watch::Steps::here()->uncounted; }
UncountedSteps::~UncountedSteps() { --Watch::Steps::here()->uncounted; }

int64_t counted_steps() { return Watch::Steps::here()->count; }

}  // namespace lockstep::inspect
