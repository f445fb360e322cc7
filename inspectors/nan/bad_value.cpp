#include "inspectors/nan/bad_value.h"

#include <fmt/format.h>

#include <utility>

#include "inspectors/exchange/report.h"
#include "inspectors/findings/about.h"
#include "inspectors/trace/tensor_values.h"

namespace lockstep::inspect {
namespace {

using Role = WatchedValue::Role;

FindingKind phase_of(Role role) {
  return role == Role::loss        ? FindingKind::forward
         : role == Role::parameter ? FindingKind::optimizer
                                   : FindingKind::backward;
}

/// The subject of the finding's sentence.
std::string words_of(const BadValue& bad, const std::string& name) {
  switch (bad.value.role) {
    case Role::loss:
      return fmt::format("the loss, made by {},", bad.value.op);
    case Role::gradient:
      return fmt::format("the gradient of {}, before the reduction,", name);
    case Role::reduced_gradient:
      return fmt::format("the gradient of {} after the reduction{}", name,
                         bad.finite_before ? " (finite on every rank before it)" : "");
    case Role::parameter:
      return fmt::format("{}, written by {} from a finite gradient,", name, bad.value.op);
  }
  return {};
}

}  // namespace

void publish_bad_value(const BadValue& bad, const TensorNames& names) {
  const FindingKind phase = phase_of(bad.value.role);
  const About about{.inspector = "nan", .object = {}, .step = bad.step, .ranks = bad.ranks};
  Finding finding =
      about.finding(Severity::fault, bad.kind == BadValue::Kind::inf ? Verdict::inf : Verdict::nan, phase);
  std::string name;
  if (const at::Tensor& parameter = bad.value.parameter; parameter.defined()) {
    const TensorName* known = names.find(parameter);
    name = known ? known->name : fmt::format("a parameter of shape {}", shape_text(parameter));
    if (known && !known->object.empty()) finding.object = known->object;
    FindingTensor tensor = finding_tensor(name, bad.values.defined() ? bad.values : parameter);
    if (bad.values.defined()) {
      const BadValues seen = bad_values(bad.values);
      tensor.count = seen.nan > 0 ? seen.nan : seen.inf;
      tensor.first = first_bad(bad.values);
    }
    finding.tensors.push_back(std::move(tensor));
  }
  if (!bad.where.empty()) finding.where = bad.where;
  const char* what = bad.kind == BadValue::Kind::nan ? "NaN" : bad.kind == BadValue::Kind::inf ? "Inf" : "NaN or Inf";
  set_message_with_ranks(
      finding, fmt::format("{} became {} in step {} ({})", words_of(bad, name), what, bad.step, to_string(phase)));
  Report report;
  report.findings.push_back(std::move(finding));
  publish(report);
}

}  // namespace lockstep::inspect
