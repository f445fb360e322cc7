// Copies a training run from one rank to others, after a rank was lost and started again: parameters, buffers,
// optimizers, the layout of DDP's buckets, and the generators (to new ranks only). Where ranks share all of their
// state, training then goes on bit by bit as if nothing had happened.
//
//   ddp::restore(net, optimizer, /*from=*/0);      // on all ranks
//
// What ranks do not share can't be copied: a shard of an optimizer's state, for example, is gone with its rank. The
// report names it. Gradients that are being accumulated, data loaders and schedulers are not copied, nor is the memory
// of communication hooks, which begins anew on all ranks.
#pragma once
#include <torch/torch.h>

#include <iosfwd>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ddp/distributed_module.h"
#include "ddp/trained_object.h"
#include "protocol/rank_set.h"

namespace lockstep::ddp {

/// What was copied, and what is lost. The same on all ranks.
struct RestoreReport {
  int from = 0;
  RankSet to;
  std::vector<std::string> restored;  // "net: 12 tensors"
  std::vector<std::string> lost;  // "optimizer: not all ranks have it"
};
std::ostream& operator<<(std::ostream& out, const RestoreReport& report);

/// Gathers what is to be copied. Ranks add the same objects under the same names. An object that some rank lacks is not
/// copied, and the report names it.
class Restoration {
 public:
  /// Copies from rank `from` to the ranks `to`, or to all others where it is empty. Other ranks keep what they have. A
  /// value on which one of them does not agree with `from` is not known to be shared, and is not copied.
  explicit Restoration(int from, RankSet to = {}) : from_(from), to_(std::move(to)) {}

  /// Adds a module, a wrapper, an optimizer or a pointer to one of these. Ignores other objects.
  template <typename T>
  Restoration& add(const std::string& name, T&& object) {
    struct {
      Restoration& all;
      const std::string& name;
      void wrapper(DistributedModule& wrapper) {
        all.add_module(name, *wrapper.module(), wrapper.options().broadcast_buffers());
        all.wrappers_.emplace(name, wrapper);
      }
      void module(torch::nn::Module& module) { all.add_module(name, module); }
      void optimizer(torch::optim::Optimizer& optimizer) { all.optimizers_.emplace(name, &optimizer); }
      void schedule() { all.left_.insert(name + ": a scheduler of learning rates has no state that can be read"); }
    } visitor{*this, name};
    detail::visit_trained(object, visitor);
    return *this;
  }

  /// Copies. Collective over all ranks of the default group. Throws ArgumentError for ranks that do not exist, Error
  /// where a rank of the group is lost.
  RestoreReport run();

 private:
  struct NamedTensor {
    std::string name;
    torch::Tensor tensor;
    bool is_synchronised = false;  // a buffer that each forward takes from rank 0
  };
  void add_module(const std::string& name, torch::nn::Module& module, bool synchronises_buffers = false);
  torch::Tensor& tensor(const std::string& name);
  /// Describes what this rank has. The descriptions of all ranks decide what is copied, in which order, and what is
  /// lost.
  nlohmann::json description() const;
  /// Returns the names of the tensors that are not what the lost rank had, since other ranks do not agree on them.
  std::set<std::string> copy_tensors(const std::vector<nlohmann::json>& all, RestoreReport& report);
  void copy_optimizer(const std::string& name, const std::vector<nlohmann::json>& all,
                      const std::set<std::string>& lost_tensors, RestoreReport& report);
  /// Says how the parameters that the optimizer steps differ from those of `from`; empty: they do not. Those that no
  /// module here has are compared by their values: they may be a shard. Collective.
  std::string difference_of(torch::optim::Optimizer& optimizer, const nlohmann::json& mine,
                            const nlohmann::json& source);
  void copy_buckets(const std::string& name, const std::vector<nlohmann::json>& all, RestoreReport& report);
  void copy_generators(const std::vector<nlohmann::json>& all, RestoreReport& report);

  int from_;
  RankSet to_;
  std::set<std::string> modules_;
  std::vector<NamedTensor> tensors_;
  std::map<std::string, torch::optim::Optimizer*> optimizers_;
  std::map<std::string, DistributedModule> wrappers_;
  std::set<std::string> left_;  // what is not restored, and why
};

/// Lets all ranks take parameters and buffers of rank `from`, and the layout of a wrapper's buckets. A process that was
/// started in the place of a lost rank takes the generators of `from`, too, the first time. Collective over all ranks
/// of the default group.
template <typename Net>
  requires(detail::is_trained<Net>())
RestoreReport restore(Net& net, int from = 0) {
  return Restoration(from).add("net", net).run();
}
/// Does the same with the state and the options of an optimizer.
template <typename Net, typename Optimizer>
  requires(detail::is_trained<Net>() && detail::is_trained<Optimizer>())
RestoreReport restore(Net& net, Optimizer& optimizer, int from = 0) {
  return Restoration(from).add("net", net).add("optimizer", optimizer).run();
}

}  // namespace lockstep::ddp
