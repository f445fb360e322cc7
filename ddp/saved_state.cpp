#include "ddp/saved_state.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "ddp/state.h"
#include "protocol/checksum.h"

namespace lockstep::ddp::detail {
namespace {

std::string bytes_of(torch::serialize::OutputArchive& archive) {
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

}  // namespace

torch::Tensor tensor_of(const std::string& bytes) {
  torch::Tensor tensor = torch::empty({static_cast<int64_t>(bytes.size())}, torch::kUInt8);
  std::ranges::copy(bytes, tensor.data_ptr<uint8_t>());
  return tensor;
}

std::string bytes_of(const torch::Tensor& tensor) {
  if (tensor.scalar_type() != torch::kUInt8) throw std::runtime_error("it holds no bytes");
  const torch::Tensor here = tensor.contiguous();
  return {reinterpret_cast<const char*>(here.data_ptr<uint8_t>()), static_cast<size_t>(here.numel())};
}

std::vector<std::pair<std::string, torch::Tensor>> tensors_of(torch::nn::Module& module) {
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
  for (const auto& each : module.named_parameters())
    if (each.value().defined()) tensors.emplace_back(each.key(), each.value());
  for (const auto& each : module.named_buffers())
    if (each.value().defined()) tensors.emplace_back(each.key(), each.value());
  return tensors;
}

std::string message_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch ? of_torch->what_without_backtrace() : error.what();
}

bool has_contents(const std::string& archive) {
  std::istringstream stream(archive);
  torch::serialize::InputArchive contents;
  contents.load_from(stream);
  return !contents.keys().empty();
}

std::string bytes_of(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  return bytes_of(archive);
}

SavedOptimizer save(const torch::optim::Optimizer& optimizer) {
  SavedOptimizer saved;
  try {
    saved.bytes = bytes_of(optimizer);
    if (!has_contents(saved.bytes)) saved.problem = "its class has no save()";
    // The archive calls parameters by their address, so it is another one on each rank.
    std::string all;
    for (const auto& group : optimizer.param_groups()) {
      torch::serialize::OutputArchive options;
      group.options().serialize(options);
      all += bytes_of(options);
      for (const torch::Tensor& parameter : group.params()) {
        const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
        if (state == optimizer.state().end()) continue;
        torch::serialize::OutputArchive of_parameter;
        state->second->serialize(of_parameter);
        all += bytes_of(of_parameter);
      }
    }
    saved.digest = protocol::checksum(all);
  } catch (const std::exception& error) {  // of a class of the user's
    saved.problem = "it can't be saved: " + message_of(error);
  }
  return saved;
}

torch::Device device_of(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    if (!group.params().empty()) return group.params().front().device();
  return torch::kCPU;
}

std::string load(torch::optim::Optimizer& optimizer, const std::string& bytes) {
  try {
    std::istringstream stream(bytes);
    torch::serialize::InputArchive archive;
    archive.load_from(stream, device_of(optimizer));
    optimizer.state().clear();
    optimizer.load(archive);
    return "";
  } catch (const std::exception& error) {
    optimizer.state().clear();
    return message_of(error);
  }
}

nlohmann::json layout_of(const DistributedModule& wrapper) {
  nlohmann::json buckets = nlohmann::json::array();
  for (const Bucket& bucket : wrapper.buckets()) buckets.push_back(bucket.parameter_indices);
  return {
      {"buckets", std::move(buckets)}, {"steps", wrapper.steps()}, {"regrouped", state_of(wrapper)->was_regrouped()}};
}

void take_over(const DistributedModule& wrapper, const nlohmann::json& layout) {
  state_of(wrapper)->take_over(layout.at("buckets").get<std::vector<std::vector<size_t>>>(),
                               layout.at("steps").get<int64_t>());
}

bool take_over_steps(const DistributedModule& wrapper, const nlohmann::json& layout) {
  if (layout_of(wrapper).at("buckets") != layout.at("buckets")) return false;
  state_of(wrapper)->set_steps(layout.at("steps").get<int64_t>(), layout.at("regrouped").get<bool>());
  return true;
}

}  // namespace lockstep::ddp::detail
