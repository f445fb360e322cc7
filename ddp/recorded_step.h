// Marks the steps of a training, so that a rank which is recorded can run its last steps again, alone (docs/replay.md).
//
//   for (int i = 0; i < 100; ++i)
//     if (auto step = ddp::step(net, optimizer)) {
//       …                                    // from zero_grad() to optimizer.step()
//     }
//
// On a rank that is recorded, the mark keeps what the step needs. On a rank that is replayed, it puts that back; it is
// false for a step that was not recorded, which is left out. On other ranks the mark does nothing, and is true.
#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "ddp/distributed_module.h"
#include "ddp/trained_object.h"

namespace lockstep::dist {
class Player;
struct Record;
}  // namespace lockstep::dist

namespace lockstep::ddp {

/// A step of a training.
class RecordedStep {
 public:
  /// Whether the step runs.
  explicit operator bool() const { return runs_; }
  /// Returns the number of the step, from 0, counted by the marks of this rank.
  int64_t number() const { return number_; }

 private:
  friend class StepMark;
  RecordedStep(int64_t number, bool runs) : number_(number), runs_(runs) {}
  int64_t number_ = 0;
  bool runs_ = true;
};

/// Marks the beginning of a step with the objects of the training.
class StepMark {
 public:
  /// Adds a module, a wrapper, an optimizer or a pointer to one of these, which training changes; or a tensor of the
  /// batch, whose values are recorded and put back.
  template <typename T>
  void add(T&& given) {
    using Object = std::remove_cvref_t<T>;
    if constexpr (std::is_same_v<Object, torch::Tensor>) {
      batch_.push_back(given);
    } else {
      static_assert(detail::is_trained<Object>(),
                    "ddp::step takes modules, wrappers, optimizers and tensors of the batch");
      detail::visit_trained(given, *this);
    }
  }
  /// Begins the step. Local. Throws dist::Error where the rank is replayed and departs from what was recorded, and
  /// where the recording, or what was asked for of it, ends before this step.
  [[nodiscard]] RecordedStep begin();

  // For visit_trained().
  void wrapper(DistributedModule& wrapper) {
    modules_.push_back(wrapper.module().get());
    wrappers_.push_back(wrapper);
  }
  void module(torch::nn::Module& module) { modules_.push_back(&module); }
  void optimizer(torch::optim::Optimizer& optimizer) { optimizers_.push_back(&optimizer); }
  void schedule() { has_schedule_ = true; }

 private:
  struct Kept;
  Kept take_state() const;
  Kept take_beginning() const;
  bool replay(dist::Player& player, int64_t number);
  void replay_state(dist::Player& player, const dist::Record& record, bool sets);
  void replay_beginning(dist::Player& player, const dist::Record& record, int64_t number, bool may_differ);

  std::vector<torch::nn::Module*> modules_;
  std::vector<DistributedModule> wrappers_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  std::vector<torch::Tensor> batch_;
  bool has_schedule_ = false;
};

/// Marks a step. `objects` are those that training changes, in the same order at each step, and tensors of the batch.
/// Local. Throws as StepMark::begin() does.
template <typename... Objects>
[[nodiscard]] RecordedStep step(Objects&&... objects) {
  StepMark mark;
  (mark.add(objects), ...);
  return mark.begin();
}

}  // namespace lockstep::ddp
