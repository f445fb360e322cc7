// Describes an operator at which runs differ in words and as a finding.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/findings/about.h"
#include "inspectors/lockstep/op_description.h"
#include "protocol/finding.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// The inputs of an operator, or its outputs.
using Marks = std::vector<MarkDescription> OpDescription::*;

/// Returns "addmm (operator 12, backward of linear, module fc1)".
std::string op_text(const OpDescription& op);
/// Returns "weight", "argument 'dim'", or "argument 1, float32 [8, 4]".
std::string mark_text(const MarkDescription& mark);

/// Returns the index of the first mark that is not the same in all runs. Every run has the operator.
std::optional<size_t> first_difference(const OpDescriptions& runs, Marks marks);
/// Whether the mark at `index` has different values.
bool values_differ(const OpDescriptions& runs, Marks marks, size_t index);
/// Returns "norm 3.1402 on rank 0, 3.1398 on rank 1": each value of the mark at `index` once, with one run that has it;
/// at most three. `on` is "on rank" or "in run"; `runs_are` are their numbers.
std::string values_text(const OpDescriptions& runs, Marks marks, size_t index, const RankSet& runs_are, const char* on);

FindingTensor tensor_of(const MarkDescription& mark, const std::string& default_name);
/// Makes a fault about `op`, with its line, object and first output.
Finding finding_at(const About& about, const std::optional<OpDescription>& op, Verdict verdict, FindingKind kind);

}  // namespace lockstep::inspect
