// Counts the steps of a thread that calls inspect::step, and informs their observers.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::inspect {

/// Observes the steps of the thread on which it was added.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// Called by inspect::step: step `number` is over.
  virtual void step_counted(int64_t number) = 0;
  /// Called when a collective is about to begin.
  virtual void collective_begins() = 0;
};

/// It is shared with its observers, since an observer at namespace scope outlives the thread's variables.
class StepCounter : public std::enable_shared_from_this<StepCounter> {
 public:
  static const std::shared_ptr<StepCounter>& of_this_thread();

  int64_t count() const { return count_; }
  /// Whether an inspector runs a step that it undoes (UncountedSteps).
  bool paused() const { return pauses_ > 0; }
  void pause() { ++pauses_; }
  void resume() { --pauses_; }
  void count_one();

  /// Adds an observer until remove(), or until the observer is destroyed.
  void add(const std::shared_ptr<StepObserver>& observer);
  void remove(const StepObserver& observer);
  std::vector<std::shared_ptr<StepObserver>> observers() const;

 private:
  int64_t count_ = 0;
  int pauses_ = 0;  // nested
  std::vector<std::weak_ptr<StepObserver>> observers_;
};

}  // namespace lockstep::inspect
