// Counts the synchronised steps of a wrapper and reports each to listeners once, when its backward is over. No
// LibTorch.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::ddp::detail {

class StepCounter {
 public:
  using Listener = std::function<void()>;

  int64_t count() const { return count_; }
  /// Counts a step: a forward that announces a reduction, or an answer to a step of other ranks.
  void add_step() { ++count_; }
  /// Sets the same count on every rank. Listeners hear of the next step, even if an earlier one had its number.
  void set(int64_t count);
  /// Drops, after a failure, the step that listeners have not heard of. Ranks may have different counts then, until
  /// agree().
  void drop_unreported_step();
  /// Takes the smallest count of any rank if they may differ. `least` maps this rank's count to it: collective, and
  /// called only then.
  void agree(const std::function<int64_t(int64_t)>& least);

  /// `listener` is called as long as the returned value lives.
  std::shared_ptr<const void> listen(Listener listener);
  /// Calls the listeners if they have not heard of the last step.
  void report();

 private:
  int64_t count_ = 0;
  int64_t reported_ = 0;  // the listeners have heard of as many
  bool ranks_may_differ_ = false;
  std::vector<std::weak_ptr<const Listener>> listeners_;
};

}  // namespace lockstep::ddp::detail
