#include <fmt/format.h>

#include <algorithm>

#include "inspectors/evidence/async_errors.h"
#include "inspectors/remains/judges.h"

namespace lockstep::inspect::judging {

void judge_communicators(const Case& job, Verdicts& verdicts) {
  for (const Evidence& each : job.remains.evidence) {
    for (const EvidenceGroup& group : each.groups) {
      if (each.source != EvidenceSource::ras) continue;
      for (const EvidenceMember& member : group.members) {
        if (!member.dead && !member.unresponsive && member.error.empty()) continue;
        const bool own = member.dead || (!member.error.empty() && !member.remote);
        Finding finding =
            about().finding(own ? Severity::fault : Severity::note, Verdict::dead, FindingKind::communicator);
        if (member.rank >= 0) finding.ranks = RankSet{member.rank};
        finding.message =
            fmt::format("{}{} of communicator {}{}: {}; by NCCL's RAS", member.rank >= 0 ? "rank " : "member ",
                        member.rank >= 0 ? member.rank : member.group_rank, group.name,
                        member.host.empty() ? "" : fmt::format(" (process {} on {})", member.pid, member.host),
                        member.dead           ? "its process does not answer and was given up"
                        : member.unresponsive ? "its process does not answer"
                                              : member.error);
        verdicts.add(own ? Weight::stuck : Weight::consequence, std::move(finding));
      }
    }
  }
  const std::vector<EvidenceError> errors = all_errors(job.remains.evidence);
  const EvidenceError* first = first_cause(errors);
  if (!first) return;
  Finding finding =
      about().finding(first->remote ? Severity::note : Severity::fault, Verdict::dead, FindingKind::communicator);
  if (first->rank >= 0) finding.ranks = RankSet{first->rank};
  finding.message =
      fmt::format("rank {} had the first error in a communicator{}: {}; by {}", first->rank,
                  first->remote ? "" : " that is its own", first->error, source_words(EvidenceSource::async_error));
  verdicts.add(first->remote ? Weight::consequence : Weight::stuck, std::move(finding), first->time_ns / 1'000'000'000);
}

}  // namespace lockstep::inspect::judging
