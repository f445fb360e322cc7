#include "inspectors/exchange/report.h"

#include <algorithm>
#include <iostream>
#include <mutex>
#include <sstream>
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

/// Prints in one piece: other ranks may write to the same terminal.
void print(const Finding& finding) {
  std::ostringstream text;
  text << finding << '\n';
  std::cerr << text.str() << std::flush;
}

}  // namespace

bool Report::ok() const { return std::none_of(findings.begin(), findings.end(), is_fault); }

std::ostream& operator<<(std::ostream& out, const Report& report) {
  for (const Finding& finding : report.findings) out << finding << '\n';
  return out;
}

void set_finding_sink(std::function<void(const Finding&)> function) {
  const std::lock_guard lock(sink_mutex);
  sink() = std::move(function);
}

void publish(const Report& report) {
  const std::lock_guard lock(sink_mutex);
  for (const Finding& finding : report.findings)
    if (sink())
      sink()(finding);
    else if (is_not_ok(finding))
      print(finding);
}

bool session_shows_findings() {
  const std::lock_guard lock(sink_mutex);
  return static_cast<bool>(sink());
}

bool is_not_ok(const Finding& finding) { return finding.verdict != Verdict::ok; }

void publish_from_reporting_rank(const Report& report, const std::function<bool(const Finding&)>& choose) {
  if (report.took_part.empty() || own_rank() != report.took_part.ranks().front()) return;
  Report chosen;
  for (const Finding& each : report.findings)
    if (!choose || choose(each)) chosen.findings.push_back(each);
  publish(chosen);
}

}  // namespace lockstep::inspect
