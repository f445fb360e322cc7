// Records what a training computes in its first steps: is it the same training in another layout (docs/compare.md)?
//
//   auto train = [&](inspect::CompareRecorder& recorder) {
//     torch::manual_seed(0);
//     auto net = …; auto optimizer = …;
//     recorder.model(net);
//     for (int step = 0; step < steps && !recorder.is_over(); ++step) {
//       auto [x, y] = batch(step);
//       recorder.samples({x, y});
//       auto out = recorder.output("fc2", net->forward(x));
//       recorder.loss(torch::mse_loss(out, y)).backward();
//       recorder.step(optimizer);
//     }
//   };
//   inspect::record_reference("layouts", train);   // rank 0 alone, with the whole batch
//   inspect::record_candidate("layouts", train);   // all ranks, in the layout in question
//
// `%compare layouts` then says whether they are the same, and if not, where they part first. A program that
// `lockstep compare --reference … --candidate …` runs makes a CompareRecorder without arguments.
#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "ddp/distributed_module.h"
#include "inspectors/compare/recorded_run.h"
#include "inspectors/subject/subject.h"
#include "inspectors/trace/steps.h"

namespace lockstep::inspect {

/// Which rank writes a recording.
enum class RecordedRank {
  of_group,  // that of the default group; rank 0 of 1 without one
  alone  // rank 0 of 1: a reference, on whatever rank it runs
};

/// Records one run, on the thread that makes it. Its calls are local, but for the checks of watches that step() runs, as
/// inspect::step does. Those after the last step record nothing.
class CompareRecorder {
 public:
  /// Records the run that `lockstep compare` has started, in its folder; in any other program it records nothing, and
  /// is_over() is false. Throws Error for a second one in a process, which would record over the first.
  CompareRecorder();
  /// Records `run`, over the file that an earlier run of this rank has left. Throws Error where its folder can't be written.
  explicit CompareRecorder(const compare::RecordedRun& run, RecordedRank rank = RecordedRank::of_group);
  ~CompareRecorder();
  CompareRecorder(const CompareRecorder&) = delete;
  CompareRecorder& operator=(const CompareRecorder&) = delete;

  /// Records the parameters that `net` begins with: a module, a holder of one, or a DDP wrapper, with the names of the
  /// module; those of a second model begin with "model2.". Throws dist::ArgumentError for a module with dropout: its random
  /// numbers depend on the layout.
  template <typename Net>
  void model(const Net& net) {
    if constexpr (std::derived_from<Net, torch::nn::Module>)
      add_model(net);
    else if constexpr (std::derived_from<Net, ddp::DistributedModule> || detail::WithModule<Net>)
      add_model(*net.module());
    else if constexpr (detail::Holder<Net>)
      add_model(*net.ptr());
    else
      add_model(*net);
  }
  /// Begins a micro-batch, whose samples are the rows of `inputs`. Ranks with the same samples share their work.
  void samples(const std::vector<torch::Tensor>& inputs);
  /// Records a value of forward, and its gradient when backward has it. `name` is that of the module that has computed it,
  /// or any other; a part of it may be an n-th of the reference's value. Returns `value`, which has the reference's elements
  /// where they are replaced.
  torch::Tensor output(const std::string& name, const torch::Tensor& value);
  /// Records the loss of a micro-batch, a scalar that is passed to backward as it is here. Returns it.
  torch::Tensor loss(const torch::Tensor& value);
  /// Records the gradients that the optimizer reads, steps it as inspect::step does, records the parameters, and ends the
  /// step. `optimizer`: one of torch::optim, or a function that updates all parameters of the model. Throws
  /// dist::ArgumentError for a step without samples().
  template <typename Optimizer>
  void step(Optimizer&& optimizer) {
    std::vector<torch::Tensor> parameters;
    if constexpr (requires { optimizer.param_groups(); }) {
      for (const auto& group : optimizer.param_groups())
        parameters.insert(parameters.end(), group.params().begin(), group.params().end());
      begin_update(parameters);
      inspect::step(optimizer);
    } else {
      parameters = trained();
      begin_update(parameters);
      optimizer();
      count_step();
    }
    end_update(parameters);
  }
  /// Whether the run has all of its steps.
  bool is_over() const;
  /// Ends the recording. Throws Error for one without a step.
  void close();

 private:
  struct State;
  void add_model(const torch::nn::Module& module);
  std::vector<torch::Tensor> trained() const;
  void begin_update(const std::vector<torch::Tensor>& parameters);
  void end_update(const std::vector<torch::Tensor>& parameters);

  std::shared_ptr<State> state_;  // null: nothing is recorded
};

struct CompareOptions {
  /// Steps that are recorded. Each costs the disk a copy of all values of the reference.
  TORCH_ARG(int64_t, steps) = 2;
  /// Perturbed runs of the reference. Each costs a run of it.
  TORCH_ARG(int64_t, runs) = 4;
  /// If the candidate differs, it is run once more, and each value is replaced by the reference's once it is recorded: then
  /// `%compare` reports all faults, and not only the first.
  TORCH_ARG(bool, all_faults) = false;
};

namespace detail {
/// Removes what `folder` has of an earlier comparison, and returns the runs that are to be recorded in it: none on ranks of
/// the default group other than 0.
std::vector<compare::RecordedRun> begin_reference(const std::string& folder, const CompareOptions& options);
/// Removes an earlier candidate's recordings, and returns the run. Collective over the default group: no rank records before
/// they are gone.
compare::RecordedRun begin_candidate(const std::string& folder, const CompareOptions& options);
/// Returns the run whose values are replaced; nothing where none is wanted, or the candidate is the same training. Collective.
std::optional<compare::RecordedRun> begin_replaced(const std::string& folder, const CompareOptions& options);
}  // namespace detail

/// Calls `train(recorder)` once as it is, and some times with its values changed by what rounding changes: on rank 0 of the
/// default group, or in a program without one. The other ranks return at once. `train` has the whole batch, begins from the
/// same seed each time, and meets no other rank in collectives. inspect::counted_steps() stays as it is. Recordings that an
/// earlier comparison has left in `folder` are removed, the candidate's too. Throws Error where `folder` can't be written,
/// or `train` makes no step.
template <typename Train>
void record_reference(const std::string& folder, Train&& train, const CompareOptions& options = {}) {
  const UncountedSteps uncounted;
  for (const compare::RecordedRun& run : detail::begin_reference(folder, options)) {
    CompareRecorder recorder(run, RecordedRank::alone);
    train(recorder);
    recorder.close();
  }
}

/// Calls `train(recorder)` once, or twice (CompareOptions::all_faults). Collective over the default group, whose ranks write
/// to the same `folder`. Throws as above, and what dist::barrier and dist::broadcast_object_list throw.
template <typename Train>
void record_candidate(const std::string& folder, Train&& train, const CompareOptions& options = {}) {
  const UncountedSteps uncounted;
  const auto record = [&](const compare::RecordedRun& run) {
    CompareRecorder recorder(run);
    train(recorder);
    recorder.close();
  };
  record(detail::begin_candidate(folder, options));
  if (const auto replaced = detail::begin_replaced(folder, options)) record(*replaced);
}

}  // namespace lockstep::inspect
