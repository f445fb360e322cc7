#include "ddp/replica.h"

#include <torch/csrc/distributed/c10d/comm.hpp>

#include <optional>
#include <set>
#include <sstream>
#include <unordered_map>

#include "ddp/comma_list.h"
#include "protocol/error.h"

namespace lockstep::ddp::detail {
namespace {

// One broadcast of parameters or buffers carries this much at most, as in PyTorch.
constexpr size_t kBroadcastBytes = 250 * 1024 * 1024;

bool has_sparse_gradients(torch::nn::Module& module) {
  if (auto* embedding = module.as<torch::nn::Embedding>()) return embedding->options.sparse();
  if (auto* bag = module.as<torch::nn::EmbeddingBag>()) return bag->options.sparse();
  return false;
}

template <class Value>
std::string text_of(const Value& value) {
  std::ostringstream text;
  text << std::boolalpha << value;
  return text.str();
}

std::string text_of_type(const std::optional<torch::ScalarType>& type) { return type ? text_of(*type) : "none"; }

std::string text_of_mixed_precision(const std::optional<MixedPrecision>& mixed) {
  if (!mixed) return "none";
  return "param_dtype " + text_of_type(mixed->param_dtype()) + ", reduce_dtype " + text_of_type(mixed->reduce_dtype()) +
         ", buffer_dtype " + text_of_type(mixed->buffer_dtype());
}

}  // namespace

Replica::Replica(std::shared_ptr<torch::nn::Module> module) : module_(std::move(module)) {
  if (!module_) throw ArgumentError("DistributedDataParallel needs a module; this one is empty");
}

void Replica::collect(const Options& options) {
  choose_device(options);
  collect_ignored(options);
  collect_parameters();
  if (parameters_.empty() && options.delay_all_reduce_named_params().empty()) {
    throw ArgumentError(
        "no parameter of this module requires a gradient, so there is nothing to reduce. Use the module without "
        "DistributedDataParallel, or set requires_grad before wrapping it");
  }
  check_mixed_precision(options);
  collect_buffers();
}

void Replica::choose_device(const Options& options) {
  if (options.param_to_hook_all_reduce().defined() == options.delay_all_reduce_named_params().empty())
    throw ArgumentError("delay_all_reduce_named_params and param_to_hook_all_reduce must be set together");

  std::set<std::string> types, devices, without_values;
  for (const auto& parameter : module_->named_parameters()) {
    types.insert(c10::DeviceTypeName(parameter->device().type(), true));
    devices.insert(parameter->device().str());
    if (parameter->is_meta()) without_values.insert(parameter.key());
  }
  if (!without_values.empty()) {
    throw ArgumentError("parameters without values (on the meta device): " + comma_list(without_values) +
                        ". Move the module to a real device first");
  }
  if (types.size() > 1) {
    throw ArgumentError("parameters are on devices of several types (" + comma_list(types) +
                        "); move the module to one: module->to(device)");
  }
  if (types.empty()) return;  // collect() reports that there are none
  device_ = module_->parameters().front().device();
  if (options.device_ids().size() > 1) {
    throw ArgumentError("device_ids takes one device: a process holds one replica. Start one process per device");
  }
  const bool on_one_gpu = !device_.is_cpu() && devices.size() == 1;
  if (!on_one_gpu && (!options.device_ids().empty() || options.output_device())) {
    throw ArgumentError("device_ids and output_device are for a module on a single GPU; parameters are on " +
                        comma_list(devices));
  }
}

void Replica::collect_ignored(const Options& options) {
  std::set<std::string> known;
  for (const auto& parameter : module_->named_parameters()) known.insert(parameter.key());
  for (const auto& buffer : module_->named_buffers()) known.insert(buffer.key());
  ignored_.insert(options.ignored_parameters().begin(), options.ignored_parameters().end());
  for (const auto& [name, parameter] : options.delay_all_reduce_named_params()) ignored_.insert(name);
  for (const auto& name : ignored_) {
    if (known.count(name)) continue;
    throw ArgumentError("there is no parameter or buffer '" + name + "' to leave out; there are " + comma_list(known));
  }
}

void Replica::collect_parameters() {
  std::unordered_set<const void*> seen;  // a shared parameter counts once, under its first name
  for (const auto& submodule : module_->named_modules()) {
    const bool is_sparse = has_sparse_gradients(*submodule.value());
    for (const auto& parameter : submodule.value()->named_parameters(/*recurse=*/false)) {
      const std::string name = submodule.key().empty() ? parameter.key() : submodule.key() + "." + parameter.key();
      if (!parameter->requires_grad() || is_ignored(name) || !seen.insert(parameter->unsafeGetTensorImpl()).second)
        continue;
      if (!parameter->is_leaf()) {
        throw ArgumentError("parameter " + name + " is the result of an operation; register a leaf tensor");
      }
      parameters_.push_back(parameter.value());
      names_.push_back(name);
      sparse_.push_back(is_sparse);
    }
  }
}

void Replica::collect_buffers() {
  std::unordered_set<const void*> seen;
  for (const auto& buffer : module_->named_buffers()) {
    if (!is_ignored(buffer.key()) && seen.insert(buffer->unsafeGetTensorImpl()).second)
      buffers_.emplace_back(buffer.key(), buffer.value());
  }
}

void Replica::check_mixed_precision(const Options& options) const {
  if (!options.mixed_precision()) return;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].is_floating_point() && !sparse_[i]) continue;
    throw ArgumentError("mixed_precision takes dense gradients of real numbers, and parameter " + names_[i] +
                        (sparse_[i] ? " has sparse ones. Make its embedding with sparse(false)"
                                    : " is of type " + std::string(c10::toString(parameters_[i].scalar_type()))) +
                        ", or name it in ignored_parameters");
  }
  if (options.find_unused_parameters()) {
    throw ArgumentError(
        "mixed_precision does not work with find_unused_parameters; set static_graph(true) instead of it");
  }
}

ReplicaDescription Replica::description(const Options& options) const {
  ReplicaDescription replica;
  std::unordered_map<const void*, std::string> first_names;
  std::unordered_set<const void*> with_sparse_gradients;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (sparse_[i]) with_sparse_gradients.insert(parameters_[i].unsafeGetTensorImpl());
  }
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (is_ignored(name)) return;
    auto described = describe(name, tensor);
    const auto [first, is_new] = first_names.emplace(tensor.unsafeGetTensorImpl(), name);
    if (!is_new) described.same_as = first->second;
    described.sparse = with_sparse_gradients.count(tensor.unsafeGetTensorImpl()) > 0;
    replica.tensors.push_back(std::move(described));
  };
  for (const auto& parameter : module_->named_parameters()) add(parameter.key(), parameter.value());
  if (options.broadcast_buffers()) {
    for (const auto& buffer : module_->named_buffers()) add(buffer.key(), buffer.value());
  }

  std::set<std::string> delayed;
  for (const auto& [name, parameter] : options.delay_all_reduce_named_params()) delayed.insert(name);
  const std::set<std::string> ignored(options.ignored_parameters().begin(), options.ignored_parameters().end());
  replica.options = {
      {"broadcast_buffers", text_of(options.broadcast_buffers())},
      {"find_unused_parameters", text_of(options.find_unused_parameters())},
      {"static_graph", text_of(options.static_graph())},
      {"skip_all_reduce_unused_params", text_of(options.skip_all_reduce_unused_params())},
      {"bucket_cap_mb", options.bucket_cap_mb() ? text_of(*options.bucket_cap_mb()) : "none"},
      {"bucket_cap_mb_list", text_of(c10::ArrayRef<double>(options.bucket_cap_mb_list()))},
      {"delay_all_reduce_named_params", comma_list(delayed)},
      {"ignored_parameters", comma_list(ignored)},
      {"mixed_precision", text_of_mixed_precision(options.mixed_precision())},
  };
  return replica;
}

void Replica::broadcast_buffers(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int src) const {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> tensors;
  for (const auto& [name, buffer] : buffers_) tensors.push_back(buffer);
  if (!tensors.empty()) c10d::broadcast_coalesced(group, tensors, kBroadcastBytes, src);
}

void Replica::broadcast(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int src, bool with_buffers) const {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> tensors;
  std::unordered_set<const void*> seen;
  for (const auto& parameter : module_->named_parameters()) {
    if (!is_ignored(parameter.key()) && seen.insert(parameter->unsafeGetTensorImpl()).second)
      tensors.push_back(parameter->detach());
  }
  if (with_buffers) {
    for (const auto& [name, buffer] : buffers_) tensors.push_back(buffer);
  }
  if (!tensors.empty()) c10d::broadcast_coalesced(group, tensors, kBroadcastBytes, src);
}

Thawed::Thawed(const std::vector<torch::Tensor>& parameters) {
  for (const torch::Tensor& parameter : parameters)
    if (!parameter.requires_grad()) frozen_.push_back(parameter.set_requires_grad(true));
}

Thawed::~Thawed() {
  for (const torch::Tensor& parameter : frozen_) parameter.set_requires_grad(false);
}

}  // namespace lockstep::ddp::detail
