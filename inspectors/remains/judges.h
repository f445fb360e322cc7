// What judge() asks, in its order. Each adds what it finds.
#pragma once
#include "inspectors/remains/case.h"
#include "inspectors/remains/verdicts.h"

namespace lockstep::inspect::judging {

/// Exceptions of ranks: equal ones of several ranks are one finding.
void judge_errors(const Case& job, Verdicts& verdicts);

/// Collectives and messages that have not ended, and calls that differ: of each group the first.
void judge_collectives(const Case& job, Verdicts& verdicts);

/// Ranks that have compared their calls and raised what differs, without a dump that says the same.
void judge_mismatch_errors(const Case& job, Verdicts& verdicts);

/// Processes that Gloo has ended since the ranks' calls differ: with the calls, where they are known.
void judge_size_mismatches(const Case& job, Verdicts& verdicts);

/// Ranks that have finished while others needed them, and processes that were killed, or left without an exception.
void judge_ends(const Case& job, Verdicts& verdicts);

/// What NCCL says of its communicators: members that do not answer, and the first error.
void judge_communicators(const Case& job, Verdicts& verdicts);

}  // namespace lockstep::inspect::judging
