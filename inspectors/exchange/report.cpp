#include "inspectors/exchange/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <ostream>
#include <utility>

#include "inspectors/exchange/inspection.h"

namespace lockstep::inspect {
namespace {

std::mutex sink_mutex;
std::function<void(const Finding&)>& sink() {
  static std::function<void(const Finding&)> function;
  return function;
}

}  // namespace

bool Report::ok() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.severity == Severity::fault; });
}

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

int reporting_rank(const RankSet& ranks, const Report& report) {
  for (const Finding& each : report.findings) {
    const bool absent = (each.kind == "call" && each.verdict == "missing") || each.verdict == "uneven_data";
    if (const RankSet there = ranks - each.ranks; absent && !there.empty()) return there.ranks().front();
  }
  return ranks.ranks().front();
}

}  // namespace lockstep::inspect
