// Wrapping a module: what is checked, what is made equal, how parameters get into buckets.
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>
#include <stdexcept>
#include <unordered_map>

#include "collectives/dist.h"
#include "ddp/delayed_all_reduce.h"
#include "ddp/hooks/comm_hooks.h"
#include "ddp/hooks/default_group.h"
#include "ddp/low_precision.h"
#include "ddp/reducer_factory.h"
#include "ddp/state.h"
#include "ddp/sync_batch_norm.h"
#include "ddp/wrappers.h"

namespace lockstep::ddp::detail {
namespace {

constexpr int64_t kMiB = 1024 * 1024;
// How much one broadcast of parameters or buffers may carry; PyTorch's figure.
constexpr size_t kBroadcastBytes = 250 * kMiB;

bool has_sparse_gradients(torch::nn::Module& module) {
  if (auto* embedding = module.as<torch::nn::Embedding>()) return embedding->options.sparse();
  if (auto* bag = module.as<torch::nn::EmbeddingBag>()) return bag->options.sparse();
  return false;
}

std::string list_of(const std::set<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

int64_t bytes_of(double mib, const char* option) {
  if (!(mib > 0)) throw std::invalid_argument(std::string(option) + " must be greater than 0");
  return static_cast<int64_t>(mib * kMiB);
}

std::string outside_text(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (!dist::is_initialized()) return "DistributedDataParallel: this rank is not in the process group";
  return "DistributedDataParallel: rank " + std::to_string(dist::get_rank()) + " is not in group " +
         dist::get_group_name(group) + " (ranks " + RankSet(dist::get_process_group_ranks(group)).str() +
         "). Wrap the module on those ranks only: if (dist::get_rank(group) >= 0)";
}

// c10d's Logger takes the backend of a group called "gloo" for a ProcessGroupGloo without asking, and a group may well have one
// around it that watches. While this lives, such a group has no name; its rank and size are those that it was made with.
class OtherNameForLogger {
 public:
  explicit OtherNameForLogger(c10d::ProcessGroup& group) : group_(group), before_(group.getBackendType()) {
    if (before_ == c10d::ProcessGroup::BackendType::GLOO &&
        !dynamic_cast<c10d::ProcessGroupGloo*>(group.getDefaultBackend().get())) {
      group.setDefaultBackend(c10d::ProcessGroup::BackendType::UNDEFINED);
    }
  }
  ~OtherNameForLogger() { group_.setDefaultBackend(before_); }

 private:
  c10d::ProcessGroup& group_;
  c10d::ProcessGroup::BackendType before_;
};

}  // namespace

State::State(std::shared_ptr<torch::nn::Module> wrapped, Options given)
    : module(std::move(wrapped)), options(std::move(given)) {
  if (!module) throw std::invalid_argument("DistributedDataParallel needs a module; this one is empty");
  group = options.process_group() ? options.process_group() : default_group();
  rank = group->getRank();
  if (rank < 0) throw std::invalid_argument(outside_text(group));
  world_size = group->getSize();
  generation = dist::get_generation(group);
}

State::~State() {
  forget_wrapper(*this);
  for (auto& [accumulator, key] : watch_hooks) accumulator->del_post_hook(key);
}

void State::choose_devices() {
  const bool both = options.param_to_hook_all_reduce().defined() == !options.delay_all_reduce_named_params().empty();
  if (!both)
    throw std::invalid_argument("delay_all_reduce_named_params and param_to_hook_all_reduce must be set together");

  std::set<std::string> types, devices;
  std::string wrong;
  for (const auto& parameter : module->named_parameters()) {
    types.insert(c10::DeviceTypeName(parameter->device().type(), true));
    devices.insert(parameter->device().str());
    if (parameter->is_meta()) wrong += (wrong.empty() ? "" : ", ") + parameter.key();
  }
  if (!wrong.empty()) {
    throw std::invalid_argument("parameters without values (on the meta device): " + wrong +
                                ". Move the module to a real device first");
  }
  if (types.size() > 1) {
    throw std::invalid_argument("parameters are on devices of several types (" + list_of(types) +
                                "); move the module to one: module->to(device)");
  }
  if (types.empty()) return;  // collect_parameters says that there are none
  device = module->parameters().front().device();
  const bool several = devices.size() > 1;
  if (options.device_ids().size() > 1) {
    throw std::invalid_argument(
        "device_ids takes one device: a process holds one replica. Start one process per device");
  }
  if ((device.is_cpu() || several) && (!options.device_ids().empty() || options.output_device())) {
    throw std::invalid_argument("device_ids and output_device are for a module on a single GPU; parameters are on " +
                                list_of(devices));
  }
}

void State::collect_parameters() {
  std::set<std::string> known;
  for (const auto& parameter : module->named_parameters()) known.insert(parameter.key());
  for (const auto& buffer : module->named_buffers()) known.insert(buffer.key());
  ignored.insert(options.ignored_parameters().begin(), options.ignored_parameters().end());
  for (const auto& [name, parameter] : options.delay_all_reduce_named_params()) ignored.insert(name);
  for (const auto& name : ignored) {
    if (!known.count(name)) {
      throw std::invalid_argument("there is no parameter or buffer '" + name + "' to leave out; there are " +
                                  list_of(known));
    }
  }

  std::unordered_set<const void*> seen;  // a shared parameter counts once, under its first name
  for (const auto& submodule : module->named_modules()) {
    const bool is_sparse = has_sparse_gradients(*submodule.value());
    for (const auto& parameter : submodule.value()->named_parameters(/*recurse=*/false)) {
      const std::string name = submodule.key().empty() ? parameter.key() : submodule.key() + "." + parameter.key();
      if (!parameter->requires_grad() || ignored.count(name) || !seen.insert(parameter->unsafeGetTensorImpl()).second)
        continue;
      if (!parameter->is_leaf()) {
        throw std::invalid_argument("parameter " + name + " is the result of an operation; register a leaf tensor");
      }
      parameters.push_back(parameter.value());
      names.push_back(name);
      sparse.push_back(is_sparse);
    }
  }
  if (parameters.empty() && options.delay_all_reduce_named_params().empty()) {
    throw std::invalid_argument(
        "no parameter of this module requires a gradient, so there is nothing to reduce. Use the module without "
        "DistributedDataParallel, "
        "or set requires_grad before wrapping it");
  }
  for (size_t i = 0; i < parameters.size() && options.mixed_precision(); ++i) {
    if (parameters[i].is_floating_point() && !sparse[i]) continue;
    throw std::invalid_argument("mixed_precision takes dense gradients of real numbers, and parameter " + names[i] +
                                (sparse[i] ? " has sparse ones. Make its embedding with sparse(false)"
                                           : " is of type " + std::string(c10::toString(parameters[i].scalar_type()))) +
                                ", or name it in ignored_parameters");
  }
  if (options.mixed_precision() && options.find_unused_parameters()) {
    throw std::invalid_argument(
        "mixed_precision and find_unused_parameters do not go together; say static_graph(true) instead");
  }
}

std::string State::describe_problem() {
  try {
    choose_devices();
    collect_parameters();
    collect_buffers();
    for (const double cap : options.bucket_cap_mb_list()) bytes_of(cap, "bucket_cap_mb_list");
    if (options.bucket_cap_mb()) bytes_of(*options.bucket_cap_mb(), "bucket_cap_mb");
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

ReplicaDescription State::describe_replica() const {
  ReplicaDescription replica;
  std::unordered_map<const void*, std::string> names_before;
  std::unordered_set<const void*> with_sparse_gradients;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (sparse[i]) with_sparse_gradients.insert(parameters[i].unsafeGetTensorImpl());
  }
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (ignored.count(name)) return;
    auto described = describe(name, tensor);
    const auto [before, is_new] = names_before.emplace(tensor.unsafeGetTensorImpl(), name);
    if (!is_new) described.same_as = before->second;
    described.sparse = with_sparse_gradients.count(tensor.unsafeGetTensorImpl()) > 0;
    replica.tensors.push_back(std::move(described));
  };
  for (const auto& parameter : module->named_parameters()) add(parameter.key(), parameter.value());
  if (options.broadcast_buffers()) {
    for (const auto& buffer : module->named_buffers()) add(buffer.key(), buffer.value());
  }

  const auto text_of = [](const auto& value) {
    std::ostringstream text;
    text << std::boolalpha << value;
    return text.str();
  };
  const auto text_of_type = [&](const std::optional<torch::ScalarType>& type) {
    return type ? text_of(*type) : std::string("none");
  };
  std::set<std::string> delayed_names;
  for (const auto& [name, parameter] : options.delay_all_reduce_named_params()) delayed_names.insert(name);
  const MixedPrecision mixed = options.mixed_precision().value_or(MixedPrecision());
  replica.options = {
      {"broadcast_buffers", text_of(options.broadcast_buffers())},
      {"find_unused_parameters", text_of(options.find_unused_parameters())},
      {"static_graph", text_of(options.static_graph())},
      {"skip_all_reduce_unused_params", text_of(options.skip_all_reduce_unused_params())},
      {"bucket_cap_mb", options.bucket_cap_mb() ? text_of(*options.bucket_cap_mb()) : "none"},
      {"bucket_cap_mb_list", text_of(c10::ArrayRef<double>(options.bucket_cap_mb_list()))},
      {"delay_all_reduce_named_params", list_of(delayed_names)},
      {"ignored_parameters", list_of({options.ignored_parameters().begin(), options.ignored_parameters().end()})},
      {"mixed_precision", options.mixed_precision() ? "param_dtype " + text_of_type(mixed.param_dtype()) +
                                                          ", reduce_dtype " + text_of_type(mixed.reduce_dtype()) +
                                                          ", buffer_dtype " + text_of_type(mixed.buffer_dtype())
                                                    : "none"},
  };
  return replica;
}

void State::construct() {
  const std::string problem = describe_problem();
  const bool collective = options.init_sync() && world_size > 1;
  if (!collective && !problem.empty()) throw std::invalid_argument("DistributedDataParallel: " + problem);
  if (options.check_reduction()) {
    TORCH_WARN_ONCE("check_reduction has no effect: the Reducer always finishes its reductions");
  }

  if (collective) {
    check_same_on_all_ranks(group, device, describe_replica(), problem);
    // Whatever else a LibTorch checks is to hold, too.
    if (!parameters.empty()) c10d::verify_params_across_processes(group, parameters, std::nullopt);
    broadcast_module_states(0);
  }
  static_graph = options.static_graph();
  if (!options.delay_all_reduce_named_params().empty()) delayed = std::make_shared<DelayedAllReduce>(*this);
  if (needs_reducer()) make_reducer();
  if (options.mixed_precision()) low_precision = LowPrecision::install(*this);
  remember_wrapper(*this);
}

bool State::synchronises_batch_norm() {
  if (const int64_t now = batchnorm_conversions(); now != batch_norm_conversions) {
    batch_norm_conversions = now;
    converts_batch_norm = has_converted_batchnorm(*module);
  }
  return converts_batch_norm;
}

bool State::needs_reducer() const {
  return !parameters.empty() && (world_size > 1 || comm_hook || builtin_hook || options.mixed_precision());
}

void State::make_reducer() {
  const double cap = options.bucket_cap_mb_list().empty()
                         ? options.bucket_cap_mb().value_or(static_cast<double>(c10d::kDefaultBucketBytesCap) / kMiB)
                         : *std::max_element(options.bucket_cap_mb_list().begin(), options.bucket_cap_mb_list().end());
  const int64_t bucket_bytes_cap = bytes_of(cap, "bucket_cap_mb");
  const bool default_cap = !options.bucket_cap_mb() && options.bucket_cap_mb_list().empty();
  const int64_t first_cap = default_cap ? c10d::kDefaultFirstBucketBytes : bucket_bytes_cap;
  std::vector<int64_t> caps;
  for (const double mib : options.bucket_cap_mb_list()) caps.push_back(bytes_of(mib, "bucket_cap_mb_list"));

  // The order in which gradients come is not known before the first backward. Until then there is one bucket, because buckets in a
  // wrong order could make ranks reduce in different orders; but searching for unused parameters never rebuilds the buckets.
  std::vector<size_t> limits(caps.begin(), caps.end());
  if (limits.empty() && (static_graph || !options.find_unused_parameters())) {
    limits = {static_cast<size_t>(std::numeric_limits<int64_t>::max())};
  } else if (limits.empty() && default_cap) {
    limits = {static_cast<size_t>(first_cap), static_cast<size_t>(bucket_bytes_cap)};
  } else if (limits.empty()) {
    limits = {static_cast<size_t>(bucket_bytes_cap)};
  }
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, limits, sparse));
  std::reverse(buckets.begin(), buckets.end());  // the gradients of what was defined last come first

  ReducerArguments arguments{parameters,
                             buckets,
                             group,
                             sparse,
                             bucket_bytes_cap,
                             options.find_unused_parameters(),
                             bucket_views(),
                             {},
                             first_cap,
                             options.skip_all_reduce_unused_params(),
                             std::move(caps),
                             options.batched_grad_copy(),
                             options.lazy_bucket_allocation()};
  for (size_t i = 0; i < names.size(); ++i) arguments.names.emplace(i, names[i]);
  keep_accumulators();
  logger.reset();
  reducer.reset();  // takes its hooks off the parameters before the new ones are put on
  {
    const PlainBucketViews plain;
    reducer = detail::make_reducer<c10d::Reducer>(std::move(arguments));
  }
  logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);

  bool has_sync_batch_norm = false;
  for (const auto& submodule : module->modules()) has_sync_batch_norm |= submodule->as<SyncBatchNorm>() != nullptr;
  std::vector<int> device_ids;
  for (const auto& id : options.device_ids()) device_ids.push_back(id.index());
  const auto output = options.output_device()
                          ? *options.output_device()
                          : (options.device_ids().empty() ? torch::Device(torch::kCPU) : options.device_ids()[0]);
  const OtherNameForLogger other_name(*group);
  logger->set_construction_data_and_log(module->name(), device_ids, output.index(), options.broadcast_buffers(),
                                        has_sync_batch_norm, static_graph);
  if (static_graph) {
    reducer->set_static_graph();
    logger->set_static_graph();
  }
  graph_known = false;
  counted_locally = false;
  announced = Announced::kNothing;
  backward_runs = false;
  gradients_arrived = false;
  if (const auto& mixed = options.mixed_precision(); mixed && mixed->param_dtype()) {
    // This casts the buckets' memory but leaves the views into it behind, so the buckets are laid out anew.
    reducer->set_mixed_precision_param_dtype(*mixed->param_dtype());
    reducer->initialize_buckets(buckets);
  }
  accumulators.clear();
  for (const auto& parameter : parameters) accumulators.push_back(torch::autograd::impl::grad_accumulator(parameter));
  register_hook_with_reducer();
  watch_backward();
}

void State::register_hook_with_reducer() {
  if (comm_hook) {
    struct Adapter : c10d::CppCommHookInterface<CommHook> {
      using CppCommHookInterface::CppCommHookInterface;
      c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
        auto reduced = state_.run(bucket);
        if (!reduced) {
          throw std::logic_error("the communication hook '" + state_.name +
                                 "' returned an empty future. It has to return one of the bucket's reduced gradients: "
                                 "group->allreduce(tensors)->getFuture(), say, or one that is marked completed with "
                                 "bucket.getBuffer()");
        }
        return reduced;
      }
    };
    logger->set_comm_hook(comm_hook->name);
    reducer->register_comm_hook(std::make_unique<Adapter>(*comm_hook));
  } else if (builtin_hook) {
    logger->set_comm_hook(*builtin_hook == c10d::BuiltinCommHookType::ALLREDUCE ? "ALLREDUCE" : "FP16_COMPRESS");
    reducer->register_builtin_comm_hook(*builtin_hook);
  }
}

void State::rebuild_buckets() {
  const PlainBucketViews plain;
  reducer->rebuild_buckets();
}

bool State::was_regrouped() const { return generation != dist::get_generation(group); }

void State::follow_regroup() {
  if (was_regrouped()) reset();
}

void State::agree_on_steps() {
  if (!steps_may_differ) return;
  const int64_t untold = steps - told_steps;
  if (world_size > 1) steps = least_over_ranks(group, steps, device);
  told_steps = steps - untold;
  steps_may_differ = false;
}

void State::reset() {
  generation = dist::get_generation(group);
  if (low_precision) low_precision->restore();
  if (reducer) make_reducer();
  if (comm_hook && comm_hook->restart) comm_hook->restart();
  if (delayed) delayed->reset();
  announced = Announced::kNothing;
  backward_runs = false;
  gradients_arrived = false;
  told_steps = steps;  // what failed is no step
  steps_may_differ = true;
  join.reset();
}

void State::collect_buffers() {
  std::unordered_set<const void*> seen;
  for (const auto& buffer : module->named_buffers()) {
    if (!ignored.count(buffer.key()) && seen.insert(buffer->unsafeGetTensorImpl()).second) {
      buffers.emplace_back(buffer.key(), buffer.value());
    }
  }
}

void State::broadcast_buffers(int src) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> tensors;
  for (auto& [name, buffer] : buffers) tensors.push_back(buffer);
  if (!tensors.empty()) c10d::broadcast_coalesced(group, tensors, kBroadcastBytes, src);
  buffers_written = false;
}

void State::broadcast_module_states(int src) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> tensors;
  std::unordered_set<const void*> seen;
  for (const auto& parameter : module->named_parameters()) {
    if (!ignored.count(parameter.key()) && seen.insert(parameter->unsafeGetTensorImpl()).second) {
      tensors.push_back(parameter->detach());
    }
  }
  if (options.broadcast_buffers()) {
    for (auto& [name, buffer] : buffers) tensors.push_back(buffer);
    buffers_written = false;
  }
  if (!tensors.empty()) c10d::broadcast_coalesced(group, tensors, kBroadcastBytes, src);
}

}  // namespace lockstep::ddp::detail
