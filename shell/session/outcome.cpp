#include "shell/session/outcome.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::shell {
namespace {

bool matches(const Tag& tag, const Finding& finding) {
  return tag.value.empty() ? finding.severity == Severity::fault
                           : tag.value == fmt::format("{}:{}", finding.inspector, to_string(finding.verdict));
}

bool is_hang(const Finding& finding) { return finding.inspector == "hang"; }

int code_of_status(CellStatus status) {
  switch (status) {
    case CellStatus::ok:
      return kExitOk;
    case CellStatus::usage_error:
      return kExitUsage;
    case CellStatus::timeout:
    case CellStatus::waiting:
      return kExitHang;
    case CellStatus::dead:
      return kExitDeath;
    case CellStatus::interrupted:
      return kExitInterrupted;
    case CellStatus::error:
    case CellStatus::compile_error:
    case CellStatus::aborted:
      return kExitFailed;
  }
  return kExitFailed;
}

}  // namespace

CellJudgement judge(const std::vector<Tag>& tags, const CellOutcome& outcome, const RankSet& lost_ranks) {
  CellJudgement judgement;
  if (outcome.status != CellStatus::interrupted && std::ranges::count(tags, kFailedBefore, &Tag::name) > 0)
    return judgement;
  bool may_fail = false, wants_hang = false, has_hang = false;
  std::vector<Tag> wanted;
  for (const auto& tag : tags) {
    if (tag.name == "raises-exception") may_fail = true;
    if (tag.name == "expects-finding") wanted.push_back(tag);
  }
  for (const auto& finding : outcome.findings) {
    has_hang = has_hang || (is_hang(finding) && finding.severity == Severity::fault);
    const bool expected =
        std::any_of(wanted.begin(), wanted.end(), [&](const Tag& tag) { return matches(tag, finding); });
    if (expected && is_hang(finding)) wants_hang = true;
    if (!expected && finding.severity == Severity::fault) ++judgement.faults;
  }

  // A hang ends its cell as aborted, and a death as dead: a tag that expects the finding expects the status, too. No
  // tag expects an interrupt.
  const bool wants_death = std::any_of(wanted.begin(), wanted.end(), [](const Tag& tag) {
    return tag.value == "hang:dead" || tag.value == "ranks:dead";
  });
  const bool ended_by_hang = outcome.status == CellStatus::aborted || outcome.status == CellStatus::waiting ||
                             (outcome.status == CellStatus::timeout && has_hang);
  const bool status_expected =
      outcome.status == CellStatus::ok ||
      (outcome.status != CellStatus::interrupted && outcome.status != CellStatus::usage_error && may_fail) ||
      (ended_by_hang && wants_hang) || (outcome.status == CellStatus::dead && wants_death);
  if (!status_expected) {
    judgement.failed = true;
    judgement.exit_code = ended_by_hang && has_hang ? kExitHang : code_of_status(outcome.status);
  }
  if (judgement.exit_code == kExitOk && !lost_ranks.empty() && !may_fail && !wants_death) {
    judgement.failed = true;
    judgement.exit_code = kExitDeath;
  }
  if (judgement.exit_code == kExitOk && judgement.faults > 0)
    judgement.exit_code =
        std::any_of(outcome.findings.begin(), outcome.findings.end(),
                    [&](const Finding& f) {
                      return is_hang(f) && f.severity == Severity::fault &&
                             std::none_of(wanted.begin(), wanted.end(), [&](const Tag& t) { return matches(t, f); });
                    }) &&
                !may_fail
            ? kExitHang
            : kExitFailed;

  if (may_fail && outcome.status == CellStatus::ok)
    judgement.complaints.push_back("an exception was expected (tag raises-exception), and the cell succeeded");
  for (const auto& tag : wanted) {
    // The error of the rank says that it died. A finding comes only where others waited for it at that moment.
    if (tag.value == "hang:dead" && outcome.status == CellStatus::dead) continue;
    if (std::none_of(outcome.findings.begin(), outcome.findings.end(),
                     [&](const Finding& f) { return matches(tag, f); }))
      judgement.complaints.push_back("a finding was expected (tag expects-finding" +
                                     (tag.value.empty() ? "" : "=" + tag.value) + "), and none came");
  }
  if (!judgement.complaints.empty()) {
    judgement.failed = true;
    if (judgement.exit_code == kExitOk) judgement.exit_code = kExitFailed;
  }
  return judgement;
}

int code_before_interrupt(const std::vector<Tag>& tags, const BeforeInterrupt& at, const RankSet& before) {
  CellOutcome outcome;
  outcome.status = at.status;
  outcome.findings = at.findings;
  const CellJudgement judgement = judge(tags, outcome, before - at.live);
  return judgement.complaints.empty() ? judgement.exit_code : kExitOk;
}

}  // namespace lockstep::shell
