#include "inspectors/subject/gradients.h"

#include <fmt/format.h>

#include <algorithm>

#include "ddp/inspection.h"

namespace lockstep::inspect {
namespace {

void set_type(GradientSubject& subject, const std::string& prefix, const char* type) {
  if (prefix.empty()) subject.type = type;
}

/// A tensor that modules share has one gradient, and is listed with its first name.
void add(GradientSubject& subject, std::string name, const at::Tensor& parameter) {
  const bool known = std::any_of(subject.parameters.begin(), subject.parameters.end(),
                                 [&](const GradientOwner& each) { return each.parameter.is_same(parameter); });
  if (!known && parameter.defined()) subject.parameters.push_back({std::move(name), parameter});
}

}  // namespace

void collect(GradientSubject& subject, const std::string& prefix, const ddp::DistributedModule& wrapper) {
  set_type(subject, prefix, "module");
  const auto& ignored = wrapper.options().ignored_parameters();
  for (const auto& each : wrapper.named_parameters())
    if (std::find(ignored.begin(), ignored.end(), each.key()) == ignored.end())
      add(subject, detail::joined(prefix, each.key()), each.value());
  subject.wrapper = wrapper;
}

void collect(GradientSubject& subject, const std::string& prefix, const torch::nn::Module& module) {
  if (const auto wrapper = ddp::Inspection::wrapper_of(module)) return collect(subject, prefix, *wrapper);
  set_type(subject, prefix, "module");
  for (const auto& each : module.named_parameters()) add(subject, detail::joined(prefix, each.key()), each.value());
}

void collect(GradientSubject& subject, const std::string& prefix, const torch::optim::Optimizer& optimizer) {
  set_type(subject, prefix, "optimizer");
  const auto& groups = optimizer.param_groups();
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t p = 0; p < groups[g].params().size(); ++p)
      add(subject, detail::joined(prefix, groups.size() == 1 ? fmt::format("{}", p) : fmt::format("{}.{}", g, p)),
          groups[g].params()[p]);
}

void collect(GradientSubject& subject, const std::string& prefix, const at::Tensor& parameter) {
  set_type(subject, prefix, "tensor");
  add(subject, prefix, parameter);
}

std::vector<at::Tensor> strided_parts(const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  if (!gradient.is_sparse()) return {gradient.detach()};
  const at::Tensor coalesced = gradient.detach().coalesce();
  return {coalesced.values(), coalesced.indices()};
}

std::vector<Fingerprint> gradient_fingerprints(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> parts;
  std::vector<size_t> first_parts;
  for (const at::Tensor& each : gradients) {
    first_parts.push_back(parts.size());
    for (at::Tensor& part : strided_parts(each)) parts.push_back(std::move(part));
  }
  first_parts.push_back(parts.size());
  const std::vector<Fingerprint> marks = fingerprint(parts);
  std::vector<Fingerprint> result;
  for (size_t i = 0; i < gradients.size(); ++i) {
    Fingerprint mark = marks[first_parts[i]];
    for (size_t p = first_parts[i] + 1; p < first_parts[i + 1]; ++p) mark.hash = combine(mark.hash, marks[p].hash);
    result.push_back(mark);
  }
  return result;
}

}  // namespace lockstep::inspect
