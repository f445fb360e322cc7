#include "inspectors/exchange/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <ostream>
#include <utility>

#include "inspectors/exchange/participants.h"
#include "inspectors/findings/about.h"

namespace lockstep::inspect {
namespace {

std::mutex sink_mutex;

// Never destroyed: threads that publish may outlive it.
std::function<void(const Finding&)>& sink() {
  static auto* function = new std::function<void(const Finding&)>;
  return *function;
}

}  // namespace

bool Report::ok() const { return std::none_of(findings.begin(), findings.end(), is_fault); }

std::ostream& operator<<(std::ostream& out, const Report& report) {
  for (const Finding& finding : report.findings) {
    out << finding.inspector << " " << finding.verdict << ": " << finding.message << '\n';
    for (const FindingTensor& tensor : finding.tensors) {
      out << fmt::format("    {}", tensor.name);
      if (!tensor.dtype.empty()) out << fmt::format(" [{}] {}", fmt::join(tensor.shape, ", "), tensor.dtype);
      if (tensor.count) out << fmt::format(", {} elements", *tensor.count);
      if (!tensor.first.empty()) out << fmt::format(", first at [{}]", fmt::join(tensor.first, ", "));
      if (tensor.max_abs_diff) out << fmt::format(", at most {:.3g} apart", *tensor.max_abs_diff);
      out << '\n';
    }
  }
  return out;
}

void set_finding_sink(std::function<void(const Finding&)> function) {
  const std::lock_guard lock(sink_mutex);
  sink() = std::move(function);
}

void publish(const Report& report) {
  const std::lock_guard lock(sink_mutex);
  if (!sink()) return;
  for (const Finding& finding : report.findings) sink()(finding);
}

bool session_shows_findings() {
  const std::lock_guard lock(sink_mutex);
  return static_cast<bool>(sink());
}

bool is_not_ok(const Finding& finding) { return !has_verdict(finding, Verdict::ok); }

void publish_from_reporting_rank(const Report& report, const std::function<bool(const Finding&)>& choose) {
  if (report.took_part.empty() || own_rank() != report.took_part.ranks().front()) return;
  Report chosen;
  for (const Finding& each : report.findings)
    if (!choose || choose(each)) chosen.findings.push_back(each);
  publish(chosen);
}

}  // namespace lockstep::inspect
