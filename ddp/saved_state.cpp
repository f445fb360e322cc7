#include "ddp/saved_state.h"

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

std::string message_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch ? of_torch->what_without_backtrace() : error.what();
}

SavedOptimizer save(const torch::optim::Optimizer& optimizer) {
  SavedOptimizer saved;
  try {
    torch::serialize::OutputArchive archive;
    optimizer.save(archive);
    saved.bytes = bytes_of(archive);
    std::istringstream stream(saved.bytes);
    torch::serialize::InputArchive contents;
    contents.load_from(stream);
    if (contents.keys().empty()) saved.problem = "its class has no save()";
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
  return {{"buckets", std::move(buckets)}, {"steps", wrapper.steps()}};
}

void take_over(const DistributedModule& wrapper, const nlohmann::json& layout) {
  state_of(wrapper)->take_over(layout.at("buckets").get<std::vector<std::vector<size_t>>>(),
                               layout.at("steps").get<int64_t>());
}

}  // namespace lockstep::ddp::detail
