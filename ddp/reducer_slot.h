// Holds a wrapper's c10d::Reducer, with its Logger and its communication hook. After a failure the Reducer is
// replaced; the hook stays.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/logger.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/hooks/comm_hooks.h"
#include "ddp/options.h"
#include "ddp/readable_reducer.h"
#include "ddp/replica.h"
#include "ddp/training_group.h"

namespace lockstep::ddp::detail {

/// Whether gradients are views into the buckets. With mixed precision they are of another type than the buckets.
bool has_bucket_views(const Options& options);
/// Returns `mib` of an option in bytes. Throws ArgumentError unless it is greater than 0.
int64_t bucket_bytes(double mib, const char* option);

class ReducerSlot {
 public:
  /// Makes the Reducer, in place of an earlier one. Throws ArgumentError for options that this LibTorch does not have.
  /// `layout` has the indices of the parameters of each bucket, as another rank has them; if it is empty, the options
  /// decide the layout.
  void make(const Replica& replica, const Options& options, const TrainingGroup& group,
            std::vector<std::vector<size_t>> layout = {});
  void clear();

  /// Returns null for one rank without a hook, or if every parameter is delayed: there is nothing to reduce.
  const std::shared_ptr<ReadableReducer>& get() const { return reducer_; }
  explicit operator bool() const { return reducer_ != nullptr; }
  ReadableReducer* operator->() const { return reducer_.get(); }
  c10d::Logger& logger() const { return *logger_; }

  /// Sets the hook of this Reducer and of those to come. Throws StateError if there is one.
  void set_hook(CommHook hook);
  void set_hook(c10d::BuiltinCommHookType hook);
  bool has_hook() const { return hook_ || builtin_hook_; }
  /// Calls CommHook::restart of the hook, if it has one.
  void restart_hook() const;

  /// Returns the buckets as they are now, in the order of reduction.
  std::vector<Bucket> buckets(const Replica& replica) const;
  /// Calls Reducer::rebuild_buckets. Collective when it rebuilds.
  void rebuild_buckets() const;
  /// Whether the last backward reduced every gradient.
  bool is_finalized() const;

  // A static graph goes through these states; make() begins with kUnknown again if the graph is static.
  //   kChanging ── set_static_graph ──> kUnknown ── learn_graph ──> kKnown
  //                                        └── count_local_forward ──> kMiscounted
  void set_static_graph(bool had_local_forward);
  /// Whether the graph is static and its first synchronised backward is still to come, or to end.
  bool learns_graph() const { return graph_ == Graph::kUnknown || graph_ == Graph::kMiscounted; }
  /// Whether the Reducer has counted gradients of a backward under no_sync for those of its first step, so it can't
  /// learn the graph.
  bool has_miscounted() const { return graph_ == Graph::kMiscounted; }
  void count_local_forward();
  /// Called at the end of the first synchronised backward: the Reducer counts its gradients, and reduces them.
  void learn_graph();

 private:
  enum class Graph { kChanging, kUnknown, kMiscounted, kKnown };
  void set_up_logger(const Replica& replica, const Options& options, const TrainingGroup& group);
  void register_hook();
  void check_no_hook() const;

  std::shared_ptr<ReadableReducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
  std::optional<CommHook> hook_;
  std::optional<c10d::BuiltinCommHookType> builtin_hook_;
  Graph graph_ = Graph::kChanging;
};

}  // namespace lockstep::ddp::detail
