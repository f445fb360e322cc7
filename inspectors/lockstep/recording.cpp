#include "inspectors/lockstep/recording.h"

namespace lockstep::inspect {

using Clock = std::chrono::steady_clock;

Report conclude(const Recording& run, const LockstepOptions& options, const char* call, const Bytes& mine,
                const std::function<std::vector<Finding>(Talk&, const std::vector<Bytes>&)>& told) {
  const RankSet ranks = taking_part(options.ranks(), call);
  Report report;
  if (!ranks.contains(own_rank())) return report;
  with_talk(ranks, options.deadline(), [&](Talk& talk) {
    const Meeting meeting = talk.meet(mine);
    if (!meeting.missing.empty())
      report.findings.push_back(absent_finding("lockstep", call, ranks, meeting.missing, options.deadline()));
    else
      report.findings = told(talk, meeting.values);
  });
  report.tensors = run.record->operators();
  report.bytes = run.record->bytes_kept();
  report.seconds = std::chrono::duration<double>(Clock::now() - run.start).count();
  if (options.publish() && own_rank() == reporting_rank(ranks, report)) publish(report);
  return report;
}

}  // namespace lockstep::inspect
