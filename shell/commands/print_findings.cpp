#include "shell/commands/print_findings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "shell/events/event.h"
#include "shell/events/finding_text.h"
#include "shell/text/screen.h"

namespace lockstep::shell {

using nlohmann::json;

bool has_fault(const std::vector<Finding>& findings) {
  return std::ranges::any_of(findings, [](const Finding& each) { return each.severity == Severity::fault; });
}

void print_findings(const std::vector<Finding>& findings) {
  const Screen screen = detect_screen(STDOUT_FILENO);
  for (const Finding& each : findings) std::fputs(finding_text(each, screen).c_str(), stdout);
}

void print_event(const json& event) { std::puts(event.dump(-1, ' ', false, json::error_handler_t::replace).c_str()); }

void print_findings_as_json(const json& files, const std::vector<Finding>& findings, int exit_code,
                            const std::function<void(json& event, const Finding& finding)>& complete) {
  print_event(files);
  for (const Finding& each : findings) {
    json event = to_event_json(FindingEvent{each});
    if (complete) complete(event, each);
    print_event(event);
  }
  print_event({{"event", "end"}, {"exit_code", exit_code}});
}

}  // namespace lockstep::shell
