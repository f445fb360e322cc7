#include "shell/events/shown_event.h"

#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

void clean(std::string& text) { text = without_controls(text); }
void clean(std::optional<std::string>& text) {
  if (text) clean(*text);
}

void clean(Finding& finding) {
  for (std::string* each : {&finding.inspector, &finding.message, &finding.subject}) clean(*each);
  for (std::optional<std::string>* each : {&finding.object, &finding.where}) clean(*each);
  for (FindingTensor& tensor : finding.tensors) {
    clean(tensor.name);
    clean(tensor.dtype);
  }
  if (!finding.op) return;
  for (std::string* each : {&finding.op->name, &finding.op->dtype, &finding.op->group}) clean(*each);
}

void clean(SessionEvent& event) {
  clean(event.backend);
  for (auto& [rank, device] : event.devices) clean(device);
  for (auto& [name, version] : event.versions) clean(version);
}
void clean(CellEvent& event) {
  clean(event.title);
  clean(event.file);
}
void clean(OutputEvent&) {}
void clean(ValueEvent& event) { event.text = without_controls(event.text, /*keeps_colours=*/true); }
void clean(ErrorEvent& event) {
  for (std::string* each : {&event.type, &event.message, &event.traceback}) clean(*each);
  clean(event.where);
  for (std::string& frame : event.stack) clean(frame);
}
void clean(FindingEvent& event) { clean(event.finding); }
void clean(RankEvent& event) { clean(event.message); }
void clean(ProgressEvent& event) { clean(event.label); }
void clean(PageEvent& event) { event.text = without_controls(event.text, /*keeps_colours=*/true); }
void clean(ActivityEvent& event) {
  for (ActivityEvent::Part& part : event.parts)
    for (std::string* each : {&part.state, &part.collective, &part.group}) clean(*each);
}
void clean(MessageEvent& event) { clean(event.text); }
void clean(MarkdownEvent& event) { clean(event.text); }
void clean(EndEvent&) {}

}  // namespace

Event shown(Event event) {
  std::visit([](auto& each) { clean(each); }, event);
  return event;
}

Finding shown(Finding finding) {
  clean(finding);
  return finding;
}

}  // namespace lockstep::shell
