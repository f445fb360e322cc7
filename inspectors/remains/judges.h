// judge() asks these, in its order. Each adds what it finds.
#pragma once
#include "inspectors/remains/case.h"
#include "inspectors/remains/verdicts.h"

namespace lockstep::inspect::judging {

/// Judges exceptions of ranks: equal ones of several ranks are one finding.
void judge_errors(const Case& job, Verdicts& verdicts);

/// Judges collectives and messages that have not ended, and calls that differ: of each group the first.
void judge_collectives(const Case& job, Verdicts& verdicts);

/// Judges waits of a running job by the stacks of its ranks, which have been looked at from outside, where no dump has
/// said more: they do not tell the number of a collective, nor its group.
void judge_stacks(const Case& job, Verdicts& verdicts);

/// Makes the last finding about a running job that was looked at from outside, and of which no hang is proven.
Finding what_ranks_do(const Case& job);

/// Judges ranks that have compared their calls and raised what differs, without a dump that says the same.
void judge_mismatch_errors(const Case& job, Verdicts& verdicts);

/// Judges processes that Gloo has ended since the ranks' calls differ: with the calls, where they are known.
void judge_size_mismatches(const Case& job, Verdicts& verdicts);

/// Judges ranks that finished while others needed them, and processes that were killed or left without exception.
void judge_ends(const Case& job, Verdicts& verdicts);

/// Judges what NCCL says of its communicators: members that do not answer, and the first error.
void judge_communicators(const Case& job, Verdicts& verdicts);

}  // namespace lockstep::inspect::judging
