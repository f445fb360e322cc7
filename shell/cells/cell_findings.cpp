#include "shell/cells/cell_findings.h"

namespace lockstep::shell {

using Clock = EventLoop::Clock;

CellFindings::CellFindings(EventLoop& loop, std::function<void(Event)> emit)
    : merger_([this, emit = std::move(emit)](Finding finding) {
        reported_.push_back(finding);
        emit(FindingEvent{std::move(finding)});
      }),
      due_(loop) {}

void CellFindings::add(Finding finding, int from, const RankSet& may_follow) {
  if (from >= 0) {
    nlohmann::json alike = finding;
    if (finding.inspector == "collectives" && finding.op) {  // not every rank has loaded the cells of all calls
      alike.erase("message");
      alike.erase("where");
    }
    RankSet& sources = sources_[alike.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)];
    const bool reported_by_others = !sources.empty() && !sources.contains(from);
    if (!reported_by_others) sources = {};
    sources.insert(from);
    if (reported_by_others) return;
  }
  merger_.add(std::move(finding), from, may_follow, Clock::now());
  due_.serve(merger_);
}

void CellFindings::clear() {
  reported_.clear();
  sources_.clear();
}

}  // namespace lockstep::shell
