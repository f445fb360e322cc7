#include "shell/jobs/stall.h"

#include <fmt/format.h>

#include <algorithm>

#include "inspectors/findings/about.h"
#include "shell/events/exit_code.h"

namespace lockstep::shell {
namespace {

const Finding* first_cause(const std::vector<Finding>& findings) {
  const auto cause = std::ranges::find_if(findings.rbegin(), findings.rend(), inspect::is_fault);
  return cause == findings.rend() ? nullptr : &*cause;
}

bool may_go_on(const inspect::RankDoing& each) {
  return !each.ended &&
         (each.kind == FindingKind::computing || each.kind == FindingKind::unknown ||
          each.kind == FindingKind::reading || each.kind == FindingKind::child || each.kind == FindingKind::device);
}

/// Returns the line of the program that the main thread of a rank is in.
const inspect::EvidenceFrame* frame_of(int rank, const inspect::Remains& remains) {
  const auto stack = std::ranges::find_if(remains.stacks, [&](const inspect::RankStack& each) {
    return each.rank == rank && each.is_main && !each.frames.empty();
  });
  return stack == remains.stacks.end() ? nullptr : inspect::program_frame(stack->frames);
}

}  // namespace

int exit_code_of_failure(const std::vector<Finding>& findings) {
  const Finding* cause = first_cause(findings);
  if (!cause) return kExitFailed;
  return cause->verdict == Verdict::hang ? kExitHang : cause->kind == FindingKind::died ? kExitDeath : kExitFailed;
}

int exit_code_of_stall(const std::vector<Finding>& findings) {
  const Finding* cause = first_cause(findings);
  return cause && cause->verdict == Verdict::dead ? exit_code_of_failure(findings) : kExitHang;
}

std::vector<Finding> as_notes(std::vector<Finding> findings) {
  for (Finding& each : findings)
    if (inspect::is_fault(each)) each.severity = Severity::note;
  return findings;
}

bool is_proven_stall(const std::vector<Finding>& findings) {
  return std::ranges::any_of(findings, [](const Finding& each) {
    return inspect::is_fault(each) && each.verdict == Verdict::hang &&
           (each.kind == FindingKind::finished || each.kind == FindingKind::died || each.kind == FindingKind::threw);
  });
}

std::optional<Finding> stall_without_collective(const inspect::Remains& remains, const RankSet& ranks, double seconds,
                                                const RankSet& absent) {
  RankSet known;
  for (const inspect::RankDoing& each : remains.doing) known.insert(each.rank);
  if (!(ranks - known).empty() || std::ranges::any_of(remains.doing, may_go_on)) return std::nullopt;
  Finding finding = inspect::About{.inspector = "hang", .object = {}, .step = {}, .ranks = ranks}.finding(
      Severity::fault, Verdict::hang);
  finding.message = fmt::format("no collective has begun or ended for {:.1f} s", seconds);
  if (!absent.empty())
    finding.message += fmt::format("; {} {} not been seen yet", absent.words(), absent.size() == 1 ? "has" : "have");
  for (const inspect::RankDoing& each : remains.doing) {
    const inspect::EvidenceFrame* frame = frame_of(each.rank, remains);
    finding.message += fmt::format("; rank {} {}{}", each.rank, each.words,
                                   frame ? fmt::format(" ({}:{})", frame->file, frame->line) : std::string());
  }
  return finding;
}

}  // namespace lockstep::shell
