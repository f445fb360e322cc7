#include "inspectors/lockstep/compare_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "inspectors/lockstep/divergence.h"
#include "inspectors/lockstep/findings.h"
#include "inspectors/lockstep/op_text.h"

namespace lockstep::inspect {
namespace {

int64_t collectives_before(const Recording& run, size_t position) {
  const auto end = run.relevant.begin() + static_cast<std::ptrdiff_t>(std::min(position, run.relevant.size()));
  return std::count_if(run.relevant.begin(), end,
                       [&](uint32_t number) { return run.record->entries()[number].collective; });
}

/// The operator gives other outputs from equal inputs.
Finding not_repeatable(const About& about, const OpDescriptions& both) {
  Finding finding = finding_at(about, both[0], Verdict::mismatch, FindingKind::computation);
  finding.message = op_text(*both[0]) + " is not deterministic: equal inputs give different outputs";
  if (const auto index = first_difference(both, &OpDescription::outputs)) {
    finding.tensors.push_back(tensor_of(both[0]->outputs[*index], "output"));
    finding.message += "; " + values_text(both, &OpDescription::outputs, *index, /*runs_are=*/RankSet{1, 2}, "in run");
  }
  return finding;
}

/// The second run does something else because of state that was not saved.
Finding other_state(const About& about, const OpDescriptions& both, const Divergence& divergence, size_t position) {
  const OpDescription& op = both[0] ? *both[0] : *both[1];
  const bool order = divergence.order == position;
  Finding finding = finding_at(about, op, order ? Verdict::op_mismatch : Verdict::mismatch,
                               order ? FindingKind::order : FindingKind::input);
  finding.severity = Severity::note;
  if (order) {
    finding.message = fmt::format(
        "the second run takes another branch at {}: what decides it is not in the state that was given", op_text(op));
  } else if (divergence.input == position) {
    const auto index = first_difference(both, &OpDescription::inputs);
    finding.message = fmt::format(
        "the second run reads other values, first in {}{}: data or state that is not in the state that was given. "
        "Later operators are not compared",
        op_text(op), index ? " (" + mark_text(op.inputs[*index]) + ")" : "");
  } else {
    finding.message = fmt::format(
        "the second run draws other random numbers, first in {}, from a generator that is not in the state that was "
        "given",
        op_text(op));
  }
  return finding;
}

SelfFacts look(const About& about, const Recording& first, const Recording& second, const TensorNames& names) {
  SelfFacts facts{.collectives = std::numeric_limits<int64_t>::max(),
                  .operators = static_cast<int64_t>(first.sequence.ops.size()),
                  .left_out = first.sequence.left_out};
  const std::vector<OpSequence> runs = {first.sequence, second.sequence};
  const Divergence divergence = find_divergence(runs);
  std::optional<size_t> position = divergence.computation;
  if (!position)
    for (const auto& each : {divergence.input, divergence.random, divergence.order})
      if (each && (!position || *each < *position)) position = each;
  if (!position) return facts;
  const std::vector<bool> differs = outputs_that_differ(runs, divergence.common);
  const OpDescriptions both = {describe_op(*first.record, first.relevant, *position, names, differs),
                               describe_op(*second.record, second.relevant, *position, names, differs)};
  facts.finding = position == divergence.computation ? not_repeatable(about, both)
                                                     : other_state(about, both, divergence, *position);
  facts.finding->ranks = {};
  facts.collectives = collectives_before(first, *position);
  return facts;
}

}  // namespace

Report compare_runs(const Recording& first, const Recording& second, const TensorNames& names,
                    const LockstepOptions& options, const char* function) {
  Report report;
  Inspection inspection = inspection_of(second, options, function);
  if (!inspection.takes_part()) return report;
  const SelfFacts mine = look(inspection.about(), first, second, names);
  if (const auto facts = inspection.exchange_facts(mine))
    inspection.add(self_findings(inspection.about(), *facts, options.max_operators()));
  conclude(inspection, second, report);
  return report;
}

}  // namespace lockstep::inspect
