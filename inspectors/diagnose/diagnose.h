// diagnose: what is wrong, when nobody knows where to look? Everything that applies to each object, and always: do
// ranks agree on who they are, are their generators alike, have they entered the same collectives. The most probable
// cause comes first, with what to ask next.
//
//   auto diagnosis = inspect::diagnose(net, optimizer, sampler);  // on every rank, after backward and before zero_grad
//   inspect::Examination().add("net", net).add("optimizer", optimizer).run();                          // with names
//
//   modules, wrappers     replicas, train or eval mode; gradients
//   optimizers            hyperparameters and state
//   samplers, indices     which samples the ranks read
//   anything else         is it the same on every rank?
#pragma once
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "inspectors/data/data.h"
#include "inspectors/exchange/report.h"
#include "inspectors/grads/grads.h"
#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

/// The deadline is that of each check, and the checks end with the first to which some rank does not come.
struct DiagnoseOptions : InspectOptionsOf<DiagnoseOptions> {};

/// Findings of all checks, faults first, the most probable cause at the top. `advice[i]` is about `findings[i]`: the
/// next magic to type; empty where there is nothing to do.
struct Diagnosis : Report {
  std::vector<std::string> advice;
  std::vector<std::string> failed;  // checks that threw, and what
};

/// A row for each finding: its number, what was looked at, what was found, and what to ask next.
std::ostream& operator<<(std::ostream& out, const Diagnosis& diagnosis);

namespace detail {

template <typename T>
concept HasGradients = std::derived_from<T, ddp::DistributedModule> || std::derived_from<T, torch::nn::Module> ||
                       std::same_as<T, torch::nn::AnyModule> || Holder<T> || WithModule<T> || PointsToModule<T>;

template <typename T>
constexpr bool is_sampler() {
  if constexpr (Pointer<T>)
    return Sampler<std::remove_cvref_t<decltype(*std::declval<T&>())>>;
  else
    return Sampler<T> || Integers<T>;
}

}  // namespace detail

/// The objects to look at, and under which names.
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
  /// every rank. Changes nothing that it looks at. A check that throws is left out, and `failed` has its message.
  /// Throws dist::ArgumentError for ranks that are not there.
  Diagnosis run(const DiagnoseOptions& options = {}) const;

 private:
  using Check = std::function<Report(const DiagnoseOptions&)>;
  void check(std::string object, Check run) { checks_.push_back({std::move(object), std::move(run)}); }

  struct Entry {
    std::string object;
    Check run;
  };
  std::vector<Entry> checks_;
};

/// Of objects without names, which are called by their kind ("module", "optimizer").
template <typename... T>
Diagnosis diagnose(const T&... objects) {
  Examination examination;
  (examination.add("", objects), ...);
  return examination.run();
}

/// Sorts findings by what most probably brings about the others: faults before notes, then how ranks are set up, how
/// objects are made, the reduction of gradients, and what follows from these. Fills in `advice`. Local.
void order_by_cause(Diagnosis& diagnosis);

}  // namespace lockstep::inspect
