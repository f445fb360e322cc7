// Wraps a module, and starts afresh: what is checked, what is made equal, and which parts are made.
#include <algorithm>
#include <utility>

#include "ddp/delayed_all_reduce.h"
#include "ddp/helpers.h"
#include "ddp/low_precision.h"
#include "ddp/parameter_check.h"
#include "ddp/state.h"
#include "ddp/sync_batch_norm.h"
#include "ddp/wrappers.h"
#include "protocol/error.h"

namespace lockstep::ddp::detail {

State::State(std::shared_ptr<torch::nn::Module> module, Options options)
    : options_(std::move(options)), replica_(std::move(module)), group_(options_.process_group()) {}

State::~State() { forget_wrapper(*this); }

void State::construct() {
  const std::string problem = find_problem();
  group_.set_device(replica_.device());
  const Construction construction;
  const bool collective = options_.init_sync() && group_.size() > 1 && !construction.is_alone();
  if (!collective && !problem.empty()) throw ArgumentError("DistributedDataParallel: " + problem);
  if (options_.check_reduction()) {
    TORCH_WARN_ONCE("check_reduction has no effect: the Reducer always finishes its reductions");
  }
  if (collective) {
    check_same_on_all_ranks(group_.get(), replica_.device(), replica_.description(options_), problem);
    // Other checks of a LibTorch have to hold, too.
    if (!replica_.parameters().empty())
      c10d::verify_params_across_processes(group_.get(), replica_.parameters(), std::nullopt);
    broadcast_module_states(0);
  }
  if (!options_.delay_all_reduce_named_params().empty())
    delayed_ = std::make_unique<DelayedAllReduce>(options_, group_);
  if (needs_reducer()) make_reducer();
  if (options_.mixed_precision()) {
    low_precision_ = LowPrecision::install(*this);
    reducer_.set_hook(low_precision_->hook());
  }
  remember_wrapper(*this);
}

std::string State::find_problem() {
  try {
    replica_.collect(options_);
    for (const double cap : options_.bucket_cap_mb_list()) bucket_bytes(cap, "bucket_cap_mb_list");
    if (options_.bucket_cap_mb()) bucket_bytes(*options_.bucket_cap_mb(), "bucket_cap_mb");
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool State::needs_reducer() const {
  return !replica_.parameters().empty() && (group_.size() > 1 || reducer_.has_hook() || options_.mixed_precision());
}

void State::make_reducer(std::vector<std::vector<size_t>> layout) {
  const Thawed thawed(replica_.parameters());
  restore_accumulators();
  reducer_.make(replica_, options_, group_, std::move(layout));
  step_.transition(Event::kReset);
  accumulators_.remember(replica_.parameters());
  // Each parameter is watched, since it may be the only one that takes part. One in low precision has other nodes,
  // which LowPrecision watches.
  accumulators_.watch(replica_.parameters(), [weak = weak_from_this()](size_t parameter) {
    if (const auto state = weak.lock()) state->gradient_arrives(parameter);
  });
}

void State::register_hook(CommHook hook) {
  if (replica_.parameters().empty()) throw StateError("every parameter is delayed, so no bucket would reach a hook");
  if (!hook.run) throw ArgumentError("a communication hook must be callable; this one is empty");
  reducer_.set_hook(std::move(hook));
  if (!reducer_) make_reducer();
}

void State::register_hook(c10d::BuiltinCommHookType hook) {
  if (replica_.parameters().empty()) throw StateError("every parameter is delayed, so no bucket would reach a hook");
  reducer_.set_hook(hook);
  if (!reducer_) make_reducer();
}

void State::register_buffer_hook(BufferCommHook hook, BufferCommHookLocation location) {
  if (!hook) throw ArgumentError("a hook for buffers must be callable; this one is empty");
  buffer_sync_.set_hook(std::move(hook), location);
}

void State::set_static_graph() {
  if (is_static()) return;
  if (steps_.count() > 0) throw StateError("set_static_graph() must come before the first forward");
  options_.static_graph(true);
  if (reducer_) reducer_.set_static_graph(/*had_local_forward=*/step_.phase() == Phase::kLocal);
}

at::DDPLoggingData State::logging_data() const {
  if (replica_.parameters().empty()) return {};
  ReducerSlot temporary;  // one rank reduces nothing and has no Reducer
  if (!reducer_) temporary.make(replica_, options_, group_);
  auto data = (reducer_ ? reducer_ : temporary).logger().get_ddp_logging_data();
  data.strs_map["backend_name"] = group_.get()->getBackendName();
  return data;
}

std::vector<Bucket> State::buckets() const {
  if (replica_.parameters().empty()) return {};
  if (reducer_) return reducer_.buckets(replica_);
  ReducerSlot temporary;
  temporary.make(replica_, options_, group_);
  return temporary.buckets(replica_);
}

void State::take_over(std::vector<std::vector<size_t>> layout, int64_t steps) {
  reset(std::move(layout));
  steps_.set(steps);
}

void State::reset(std::vector<std::vector<size_t>> layout) {
  group_.follow_regroup();
  restore_full_precision();
  if (needs_reducer()) {
    make_reducer(std::move(layout));
  } else {
    reducer_.clear();
  }
  reducer_.restart_hook();
  if (delayed_) delayed_->reset();
  step_.transition(Event::kReset);
  steps_.drop_unreported_step();
  join_.reset();
}

void State::exchange_group(c10::intrusive_ptr<c10d::ProcessGroup> group) {
  group_.exchange(std::move(group));
  reset();
}

void State::follow_regroup() {
  if (group_.was_regrouped()) reset();
}

void State::agree_on_steps() {
  steps_.agree([this](int64_t mine) { return group_.size() > 1 ? group_.least(mine) : mine; });
}

void State::broadcast_module_states(int src) {
  replica_.broadcast(group_.get(), src, options_.broadcast_buffers());
  if (options_.broadcast_buffers()) buffer_sync_.set_may_differ(false);
}

void State::restore_full_precision() {
  if (low_precision_) low_precision_->restore();
}

bool State::synchronises_batch_norm() {
  if (const int64_t now = batchnorm_conversions(); now != batch_norm_conversions_) {
    batch_norm_conversions_ = now;
    converts_batch_norm_ = has_converted_batchnorm(*replica_.module());
  }
  return converts_batch_norm_;
}

}  // namespace lockstep::ddp::detail
