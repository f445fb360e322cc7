// diagnose says what is wrong. It runs all inspectors that apply to each object, and always compares setup, generators
// and number of collectives of the ranks. The most probable cause comes first, with the next magic to run.
//
//   auto diagnosis = inspect::diagnose(net, optimizer, sampler);  // on every rank, after backward and before zero_grad
//   inspect::Examination().add("net", net).add("optimizer", optimizer).run();                          // with names
//
//   modules, wrappers     replicas, train or eval mode; gradients
//   optimizers            hyperparameters and state; whether they train one of the modules at all
//   samplers, indices     which samples the ranks read
//   anything else         verify
#pragma once
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "inspectors/data/data.h"
#include "inspectors/exchange/report.h"
#include "inspectors/grads/grads.h"
#include "inspectors/trace/tensor_names.h"
#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

/// The deadline applies to each check. Checks end with the first one that some rank does not call.
struct DiagnoseOptions : InspectOptionsOf<DiagnoseOptions> {};

/// Has the findings of all checks, faults first, the most probable cause at the top.
struct Diagnosis : Report {
  std::vector<std::string> advice;  // by index of the finding: the next magic to run; may be empty
  std::vector<std::string> failed;  // checks that threw, with the message
};

/// Prints a row for each finding, with the next magic to run.
std::ostream& operator<<(std::ostream& out, const Diagnosis& diagnosis);

namespace detail {

template <typename T>
concept HasGradients = std::derived_from<T, ddp::DistributedModule> || std::derived_from<T, torch::nn::Module> ||
                       std::same_as<T, torch::nn::AnyModule> || Holder<T> || WithModule<T> || PointsToModule<T>;

template <typename T>
concept PointsToOptimizer = requires(const T& pointer) {
  { *pointer } -> std::convertible_to<const torch::optim::Optimizer&>;
  { static_cast<bool>(pointer) };
};

template <typename T>
constexpr bool is_sampler() {
  if constexpr (Pointer<T>)
    return Sampler<std::remove_cvref_t<decltype(*std::declval<T&>())>>;
  else
    return Sampler<T> || Integers<T>;
}

}  // namespace detail

/// The objects to inspect, with their names.
class Examination {
 public:
  /// Keeps a reference: `object` has to live until run().
  template <typename T>
  Examination& add(std::string name, const T& object) {
    if constexpr (detail::is_sampler<T>()) {
      check(name, [name, &object](const DiagnoseOptions& options) {
        return static_cast<Report>(data(object, DataOptions().same_ranks_as(options).name(name).publish(false)));
      });
    } else {
      learn(name, object);
      check(name, [name, &object](const DiagnoseOptions& options) {
        return verify(object, VerifyOptions().same_ranks_as(options).name(name).publish(false));
      });
      if constexpr (detail::HasGradients<T>)
        check(name, [name, &object](const DiagnoseOptions& options) {
          return grads(object, GradsOptions().same_ranks_as(options).name(name).publish(false));
        });
    }
    return *this;
  }

  /// Collective over the options' ranks, over the inspectors' own connections; objects and their order are the same on
  /// every rank. Does not change the objects. A check that throws is left out, and `failed` has its message. Throws
  /// dist::ArgumentError for ranks that do not exist.
  Diagnosis run(const DiagnoseOptions& options = {}) const;

 private:
  using Check = std::function<Report(const DiagnoseOptions&)>;
  void check(std::string object, Check run) { checks_.push_back({std::move(object), std::move(run)}); }
  template <typename T>
  void learn(const std::string& name, const T& object) {
    if constexpr (std::derived_from<T, torch::optim::Optimizer>)
      optimizers_.emplace_back(name, &object);
    else if constexpr (detail::PointsToOptimizer<T>)
      optimizers_.emplace_back(name, object ? &*object : nullptr);
    else if constexpr (std::same_as<T, torch::nn::AnyModule>) {
      if (!object.is_empty()) detail::learn_names(parameters_, name, *object.ptr());
    } else if constexpr (detail::HasParameters<T> || detail::PointsToModule<T> || std::derived_from<T, at::Tensor>)
      detail::learn_names(parameters_, name, object);
    else
      has_others_ = true;
    has_module_ = has_module_ || detail::HasGradients<T>;
  }
  /// Whether the optimizer steps a parameter of the modules. There is no `ok`, which the check of the optimizer has.
  Report trains(const std::string& name, const torch::optim::Optimizer& optimizer,
                const DiagnoseOptions& options) const;

  struct Entry {
    std::string object;
    Check run;
  };
  std::vector<Entry> checks_;
  std::vector<std::pair<std::string, const torch::optim::Optimizer*>> optimizers_;
  TensorNames parameters_;  // and tensors, which an optimizer may step as well
  bool has_module_ = false, has_others_ = false;  // others, such as lists: an optimizer may step what is in them
};

/// Takes objects without names; findings use their kind ("module", "optimizer").
template <typename... T>
Diagnosis diagnose(const T&... objects) {
  Examination examination;
  (examination.add("", objects), ...);
  return examination.run();
}

/// Sorts findings, causes before consequences: faults before notes, then the setup of ranks, the structure of objects,
/// gradients, and the rest. Fills in `advice`. Local.
void order_by_cause(Diagnosis& diagnosis);

}  // namespace lockstep::inspect
