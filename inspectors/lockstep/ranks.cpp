#include "inspectors/lockstep/compare_runs.h"

#include <nlohmann/json.hpp>

#include "inspectors/lockstep/facts.h"
#include "inspectors/lockstep/findings.h"
#include "inspectors/lockstep/integer_overflow.h"
#include "inspectors/lockstep/run_details.h"

namespace lockstep::inspect {
namespace {

RunFacts look(const Recording& run) {
  RunFacts facts{.operators = static_cast<int64_t>(run.sequence.ops.size()),
                 .left_out = run.sequence.left_out,
                 .backwards = run.record->backwards(),
                 .read_too_early = run.record->read_too_early() >= 0,
                 .may_overflow = calls_that_may_overflow(run.record->integer_reductions())};
  for (const OpSequence::Op& op : run.sequence.ops)
    facts.digest = combine(combine(facts.digest, {op.name, op.inputs}), {op.outputs, op.generator});
  return facts;
}

/// Collective; exchanges nothing if no rank suspects a call.
std::vector<std::vector<std::optional<ReductionFacts>>> exchange_reductions(Exchange& exchange, const Recording& run,
                                                                            const std::vector<RunFacts>& facts) {
  const auto calls = suspected_calls(facts);
  if (calls.empty()) return {};
  nlohmann::json mine = nlohmann::json::array();
  for (const auto& each : reduction_facts(run.record->integer_reductions(), calls))
    mine.push_back(each ? nlohmann::json(*each) : nlohmann::json());
  std::vector<std::vector<std::optional<ReductionFacts>>> result;
  for (const nlohmann::json& of_rank : exchange.gather_json(mine)) {
    result.emplace_back();
    for (const nlohmann::json& each : of_rank)
      result.back().push_back(each.is_null() ? std::nullopt : std::optional(each.get<ReductionFacts>()));
  }
  return result;
}

}  // namespace

Report compare_ranks(const Recording& run, const TensorNames& names, const LockstepOptions& options,
                     const char* function) {
  Report report;
  Inspection inspection = inspection_of(run, options, function);
  if (!inspection.takes_part()) return report;
  const RunFacts mine = look(run);
  if (const auto facts = inspection.exchange_facts(mine)) {
    const RunDetails details = exchange_details(inspection.exchange(), run, names, options, *facts);
    const auto reductions = exchange_reductions(inspection.exchange(), run, *facts);
    inspection.add(run_findings(inspection.about(), details, *facts, options));
    inspection.add(overflow_findings(inspection.about(), reductions));
  }
  conclude(inspection, run, report);
  return report;
}

}  // namespace lockstep::inspect
