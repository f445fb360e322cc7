#include "inspectors/lockstep/self.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "inspectors/lockstep/findings.h"
#include "inspectors/lockstep/op_words.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

/// What this rank found of its two runs: a finding without ranks, and how many collectives came before what it is
/// about.
struct OwnFinding {
  Finding finding;
  int64_t collectives = 0;
};

int64_t collectives_before(const Recording& run, size_t place) {
  const auto end = run.matters.begin() + static_cast<std::ptrdiff_t>(std::min(place, run.matters.size()));
  return std::count_if(run.matters.begin(), end,
                       [&](uint32_t number) { return run.record->entries()[number].collective; });
}

std::optional<OwnFinding> compare_with_itself(const Recording& first, const Recording& second, const TensorNames& names,
                                              const LockstepOptions& options) {
  const std::vector<OpSequence> runs = {first.sequence, second.sequence};
  const Partings partings = find_partings(runs);
  const std::vector<bool> differs = outputs_that_differ(runs, partings.common);
  const RankSet times{1, 2};
  const auto places = [&](size_t place) {
    return std::vector<json>{describe_place(*first.record, first.matters, place, names, differs),
                             describe_place(*second.record, second.matters, place, names, differs)};
  };
  const auto earlier = [](const std::optional<size_t>& a, const std::optional<size_t>& b) {
    return a && (!b || *a < *b);
  };
  if (partings.computation) {
    const auto both = places(*partings.computation);
    Finding finding = finding_at(both[0], "mismatch", "computation", options);
    size_t index = 0;
    std::string values;
    if (const json* mark = differing(both, "outputs", index)) {
      finding.tensors.push_back(tensor_of(*mark, "output"));
      values = "; " + values_text(both, "outputs", index, times, "in run");
    }
    finding.message = op_text(both[0]) + " does not repeat itself: from equal inputs it gives other results" + values;
    return OwnFinding{std::move(finding), collectives_before(first, *partings.computation)};
  }
  std::optional<size_t> other = partings.input;
  if (earlier(partings.drawn, other)) other = partings.drawn;
  if (earlier(partings.order, other)) other = partings.order;
  if (!other) return std::nullopt;
  const auto both = places(*other);
  const json& place = both[0].is_null() ? both[1] : both[0];
  Finding finding = finding_at(place, "mismatch", "input", options);
  finding.severity = Severity::note;
  size_t index = 0;
  if (partings.order == other) {
    finding.verdict = "op_mismatch";
    finding.kind = "order";
    finding.message = "the step goes another way the second time, at " + op_text(place) +
                      ": what it decides by is not in the state that was given";
  } else if (partings.input == other) {
    const json* mark = differing(both, "inputs", index);
    finding.message = fmt::format(
        "the step reads something else the second time, first in {}{}: data or state that is not in the state that was "
        "given. Operators behind that are not judged",
        op_text(place), mark ? " (" + mark_text(*mark) + ")" : "");
  } else {
    finding.message = "the step draws other random numbers the second time, first in " + op_text(place) +
                      ", from a generator that is not in the state that was given";
  }
  return OwnFinding{std::move(finding), collectives_before(first, *other)};
}

SelfFacts look(const Recording& first, const Recording& second, const TensorNames& names,
               const LockstepOptions& options) {
  SelfFacts facts{.collectives = std::numeric_limits<int64_t>::max(),
                  .operators = static_cast<int64_t>(first.sequence.ops.size()),
                  .left_out = first.sequence.left_out};
  if (std::optional<OwnFinding> own = compare_with_itself(first, second, names, options)) {
    facts.finding = std::move(own->finding);
    facts.collectives = own->collectives;
  }
  return facts;
}

}  // namespace

Report compare_runs(const Recording& first, const Recording& second, const TensorNames& names,
                    const LockstepOptions& options, const char* function) {
  Report report;
  Inspection inspection = inspection_of(second, options, function);
  if (!inspection.takes_part()) return report;
  const SelfFacts mine = look(first, second, names, options);
  if (const auto facts = inspection.exchange_facts(mine))
    inspection.add(self_findings(inspection.about(), *facts, options.max_operators()));
  conclude(inspection, second, report);
  return report;
}

}  // namespace lockstep::inspect
