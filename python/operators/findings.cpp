#include "python/operators/findings.h"

#include <mutex>
#include <sstream>
#include <utility>

#include "protocol/finding.h"
#include "shell/events/finding_text.h"

namespace lockstep::python {
namespace {

using nlohmann::json;

/// More than this, published and not taken, is dropped: a program that never asks must not fill its memory.
constexpr size_t kMostWaiting = 10'000;

struct PublishedFindings {
  std::mutex mutex;
  json waiting = json::array();
};

// Never destroyed: threads that publish may outlive it.
PublishedFindings& published_findings() {
  static auto* all = new PublishedFindings;
  return *all;
}

thread_local std::string current_where;

void place(Finding& finding) {
  if (!finding.where && !current_where.empty()) finding.where = current_where;
}

}  // namespace

CurrentCall::CurrentCall(std::string where) : before_(std::exchange(current_where, std::move(where))) {
  if (current_where.empty()) current_where = before_;
}
CurrentCall::~CurrentCall() { current_where = std::move(before_); }

void collect_findings() {
  inspect::set_finding_sink([](const Finding& finding) {
    Finding placed = finding;
    place(placed);
    PublishedFindings& all = published_findings();
    const std::lock_guard lock(all.mutex);
    if (all.waiting.size() < kMostWaiting) all.waiting.push_back(placed);
  });
}

json take_findings() {
  PublishedFindings& all = published_findings();
  const std::lock_guard lock(all.mutex);
  return std::exchange(all.waiting, json::array());
}

json report_json(const inspect::Report& report, std::string table) {
  json findings = json::array();
  for (const Finding& each : report.findings) {
    Finding placed = each;
    place(placed);
    findings.push_back(std::move(placed));
  }
  return {{"findings", std::move(findings)},
          {"tensors", report.tensors},
          {"bytes", report.bytes},
          {"seconds", report.seconds},
          {"took_part", report.took_part.ranks()},
          {"table", std::move(table)}};
}

std::string draw(const json& findings, bool colour, bool unicode, int width) {
  const shell::Screen screen{.terminal = false, .colour = colour, .unicode = unicode, .width = width};
  std::string text;
  for (const json& each : findings) text += shell::finding_text(each.get<Finding>(), screen);
  return text;
}

}  // namespace lockstep::python
