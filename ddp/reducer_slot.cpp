#include "ddp/reducer_slot.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "ddp/reducer_factory.h"
#include "ddp/sync_batch_norm.h"
#include "protocol/error.h"

namespace lockstep::ddp::detail {
namespace {

constexpr int64_t kMiB = 1024 * 1024;

// The largest sizes of buckets in bytes, as the options give them.
struct BucketCaps {
  int64_t first, others;
  std::vector<int64_t> list;  // of the first, second, … bucket; empty: the two above
  bool is_default;
};

BucketCaps bucket_caps(const Options& options) {
  BucketCaps caps{};
  for (const double mib : options.bucket_cap_mb_list()) caps.list.push_back(bucket_bytes(mib, "bucket_cap_mb_list"));
  caps.is_default = !options.bucket_cap_mb() && caps.list.empty();
  if (!caps.list.empty()) {
    caps.others = *std::max_element(caps.list.begin(), caps.list.end());
  } else {
    const auto cap = options.bucket_cap_mb();
    caps.others = cap ? bucket_bytes(*cap, "bucket_cap_mb") : c10d::kDefaultBucketBytesCap;
  }
  caps.first = caps.is_default ? c10d::kDefaultFirstBucketBytes : caps.others;
  return caps;
}

// The order in which gradients come is unknown before the first backward. Until then there is one bucket, because ranks
// could reduce buckets in different orders; but with a search for unused parameters the buckets are never rebuilt.
std::vector<size_t> first_limits(const BucketCaps& caps, const Options& options) {
  if (!caps.list.empty()) return {caps.list.begin(), caps.list.end()};
  if (options.static_graph() || !options.find_unused_parameters())
    return {static_cast<size_t>(std::numeric_limits<int64_t>::max())};
  if (caps.is_default) return {static_cast<size_t>(caps.first), static_cast<size_t>(caps.others)};
  return {static_cast<size_t>(caps.others)};
}

// c10d's Logger casts the backend of a group called "gloo" to ProcessGroupGloo without a check, and a group may have
// another one around it that watches. While this object lives, such a group has no backend type. Its rank and size stay
// those that it was made with.
class OtherTypeForLogger {
 public:
  explicit OtherTypeForLogger(c10d::ProcessGroup& group) : group_(group), before_(group.getBackendType()) {
    if (before_ == c10d::ProcessGroup::BackendType::GLOO &&
        !dynamic_cast<c10d::ProcessGroupGloo*>(group.getDefaultBackend().get())) {
      group.setDefaultBackend(c10d::ProcessGroup::BackendType::UNDEFINED);
    }
  }
  ~OtherTypeForLogger() { group_.setDefaultBackend(before_); }
  OtherTypeForLogger(const OtherTypeForLogger&) = delete;
  OtherTypeForLogger& operator=(const OtherTypeForLogger&) = delete;

 private:
  c10d::ProcessGroup& group_;
  c10d::ProcessGroup::BackendType before_;
};

struct HookAdapter : c10d::CppCommHookInterface<CommHook> {
  using CppCommHookInterface::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    auto reduced = state_.run(bucket);
    if (!reduced) {
      throw ArgumentError("the communication hook '" + state_.name +
                          "' returned an empty future. It must return a future of the bucket's reduced gradients: "
                          "group->allreduce(tensors)->getFuture(), for example, or one that is marked completed with "
                          "bucket.getBuffer()");
    }
    return reduced;
  }
};

}  // namespace

bool has_bucket_views(const Options& options) {
  return options.gradient_as_bucket_view() && !options.mixed_precision();
}

int64_t bucket_bytes(double mib, const char* option) {
  if (!(mib > 0)) throw ArgumentError(std::string(option) + " must be greater than 0");
  return static_cast<int64_t>(mib * kMiB);
}

void ReducerSlot::make(const Replica& replica, const Options& options, const TrainingGroup& group,
                       std::vector<std::vector<size_t>> layout) {
  const BucketCaps caps = bucket_caps(options);
  std::vector<std::vector<size_t>> buckets = std::move(layout);
  if (buckets.empty()) {
    buckets = std::get<0>(
        c10d::compute_bucket_assignment_by_size(replica.parameters(), first_limits(caps, options), replica.sparse()));
    std::reverse(buckets.begin(), buckets.end());  // the gradients of what was defined last come first
  }

  ReducerArguments arguments{.parameters = replica.parameters(),
                             .buckets = buckets,
                             .group = group.get(),
                             .sparse = replica.sparse(),
                             .bucket_bytes_cap = caps.others,
                             .find_unused_parameters = options.find_unused_parameters(),
                             .gradient_as_bucket_view = has_bucket_views(options),
                             .names = {},
                             .first_bucket_bytes_cap = caps.first,
                             .skip_all_reduce_unused_params = options.skip_all_reduce_unused_params(),
                             .bucket_bytes_cap_list = caps.list,
                             .batched_grad_copy = options.batched_grad_copy(),
                             .lazy_bucket_allocation = options.lazy_bucket_allocation()};
  for (size_t i = 0; i < replica.names().size(); ++i) arguments.names.emplace(i, replica.names()[i]);
  clear();  // takes its hooks off the parameters before the new ones are put on
  const Thawed thawed(replica.parameters());
  {
    const PlainBucketViews plain;
    reducer_ = make_reducer<ReadableReducer>(std::move(arguments));
  }
  set_up_logger(replica, options, group);
  if (options.static_graph()) set_static_graph(/*had_local_forward=*/false);
  if (const auto& mixed = options.mixed_precision(); mixed && mixed->param_dtype()) {
    // This casts the memory of the buckets and leaves the views into it as they were, so the buckets are laid out
    // again.
    reducer_->set_mixed_precision_param_dtype(*mixed->param_dtype());
    reducer_->initialize_buckets(buckets);
  }
  register_hook();
}

void ReducerSlot::clear() {
  logger_.reset();
  reducer_.reset();
  graph_ = Graph::kChanging;
}

void ReducerSlot::set_up_logger(const Replica& replica, const Options& options, const TrainingGroup& group) {
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  bool has_sync_batch_norm = false;
  for (const auto& submodule : replica.module()->modules())
    has_sync_batch_norm |= submodule->as<SyncBatchNorm>() != nullptr;
  std::vector<int> device_ids;
  for (const auto& id : options.device_ids()) device_ids.push_back(id.index());
  const auto first = options.device_ids().empty() ? torch::Device(torch::kCPU) : options.device_ids()[0];
  const OtherTypeForLogger other_type(*group.get());
  logger_->set_construction_data_and_log(replica.module()->name(), device_ids,
                                         options.output_device().value_or(first).index(), options.broadcast_buffers(),
                                         has_sync_batch_norm, options.static_graph());
}

void ReducerSlot::set_hook(CommHook hook) {
  check_no_hook();
  hook_ = std::move(hook);
  if (reducer_) register_hook();
}

void ReducerSlot::set_hook(c10d::BuiltinCommHookType hook) {
  check_no_hook();
  builtin_hook_ = hook;
  if (reducer_) register_hook();
}

void ReducerSlot::check_no_hook() const {
  if (!has_hook()) return;
  throw StateError("a communication hook can be registered once; this module has '" +
                   (hook_ ? hook_->name : std::string("built-in")) + "'");
}

void ReducerSlot::register_hook() {
  if (hook_) {
    logger_->set_comm_hook(hook_->name);
    reducer_->register_comm_hook(std::make_unique<HookAdapter>(*hook_));
  } else if (builtin_hook_) {
    logger_->set_comm_hook(*builtin_hook_ == c10d::BuiltinCommHookType::ALLREDUCE ? "ALLREDUCE" : "FP16_COMPRESS");
    reducer_->register_builtin_comm_hook(*builtin_hook_);
  }
}

void ReducerSlot::restart_hook() const {
  if (hook_ && hook_->restart) hook_->restart();
}

std::vector<Bucket> ReducerSlot::buckets(const Replica& replica) const {
  std::unordered_map<const void*, size_t> index_of;
  for (size_t i = 0; i < replica.parameters().size(); ++i) index_of[replica.parameters()[i].unsafeGetTensorImpl()] = i;
  std::vector<Bucket> buckets;
  for (const auto& from : reducer_->read_buckets()) {
    Bucket bucket{from.getIndex(), {}, {}, 0};
    for (const auto& parameter : from.getParameters()) {
      const size_t index = index_of.at(parameter.unsafeGetTensorImpl());
      bucket.parameters.push_back(replica.names()[index]);
      bucket.parameter_indices.push_back(index);
      bucket.bytes += static_cast<int64_t>(parameter.nbytes());
    }
    buckets.push_back(std::move(bucket));
  }
  return buckets;
}

void ReducerSlot::rebuild_buckets() const {
  const PlainBucketViews plain;
  reducer_->rebuild_buckets();
}

bool ReducerSlot::is_finalized() const {
  try {
    reducer_->check_finalized();
    return true;
  } catch (const c10::Error&) {  // LibTorch has no function that answers without an exception
    return false;
  }
}

void ReducerSlot::set_static_graph(bool had_local_forward) {
  reducer_->set_static_graph();
  logger_->set_static_graph();
  graph_ = had_local_forward ? Graph::kMiscounted : Graph::kUnknown;
}

void ReducerSlot::count_local_forward() {
  if (graph_ == Graph::kUnknown) graph_ = Graph::kMiscounted;
}

void ReducerSlot::learn_graph() {
  reducer_->delay_all_reduce();
  graph_ = Graph::kKnown;
}

}  // namespace lockstep::ddp::detail
