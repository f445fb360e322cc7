#include "inspectors/lockstep/run_details.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace lockstep::inspect {
namespace {

using nlohmann::json;

class DetailExchange {
 public:
  DetailExchange(Exchange& exchange, const Recording& run, const TensorNames& names, const LockstepOptions& options)
      : exchange_(exchange), run_(run), names_(names), options_(options), relevant_(run.relevant) {}

  RunDetails run(const std::vector<RunFacts>& facts) {
    RunDetails details;
    const bool equal = std::ranges::all_of(facts, [&](const RunFacts& each) { return each.same_run(facts[0]); });
    details.sequences = equal ? std::vector<OpSequence>{run_.sequence} : gather(run_.sequence);
    const CommonEffects effects = common_effects(details.sequences);
    if (options_.cut_short() && effects.count == 0) {
      details.relation = RunRelation::nothing_in_common;
      return details;
    }
    const bool some_finished = std::ranges::count(effects.finished, true) > 0;
    const bool may_end_early =
        options_.cut_short() ||
        std::ranges::any_of(details.sequences, [](const OpSequence& each) { return each.left_out > 0; });
    // Which operators are relevant follows from the effects, so ranks with different effects are comparable only up to
    // the last common one. If no rank has finished, the next effect of each rank is compared as well: the operators
    // that it depends on show where the ranks diverged.
    if (!effects.all) {
      relevant_ = run_.record->relevant_for(effects.count + (some_finished ? 0 : 1));
      details.sequences = gather(sequence_of(*run_.record, relevant_));
    }
    details.divergence = find_divergence(details.sequences);
    differs_ = outputs_that_differ(details.sequences, details.divergence.common);
    if (const auto fault = details.divergence.first_fault()) {
      details.relation = RunRelation::diverged;
      details.ops = describe({*fault});
    } else if (some_finished && !may_end_early) {
      details.relation = RunRelation::ended_early;
      details.not_run = describe_not_run(effects);
    } else {
      details.ops = describe(positions_in_step(details));
      if (std::ranges::any_of(facts, &RunFacts::read_too_early)) details.read_too_early = describe_early_reads();
    }
    return details;
  }

 private:
  std::vector<OpSequence> gather(const OpSequence& mine) {
    std::vector<OpSequence> sequences;
    for (const Bytes& each : exchange_.gather(mine.bytes())) sequences.push_back(OpSequence::from_bytes(each));
    return sequences;
  }

  std::optional<OpDescription> own(size_t position) const {
    return describe_op(*run_.record, relevant_, position, names_, differs_);
  }

  static json packed(const std::optional<OpDescription>& op) { return op ? json(*op) : json(); }
  static std::optional<OpDescription> unpacked(const json& value) {
    return value.is_null() ? std::nullopt : std::optional(value.get<OpDescription>());
  }

  OpDescriptions gather(const std::optional<OpDescription>& mine) {
    OpDescriptions result;
    for (const json& each : exchange_.gather_json(packed(mine))) result.push_back(unpacked(each));
    return result;
  }

  std::map<size_t, OpDescriptions> describe(const std::set<size_t>& positions) {
    std::map<size_t, OpDescriptions> result;
    if (positions.empty()) return result;
    json mine = json::array();
    for (const size_t position : positions) mine.push_back(packed(own(position)));
    for (const json& of_rank : exchange_.gather_json(mine)) {
      size_t index = 0;
      for (const size_t position : positions) result[position].push_back(unpacked(of_rank.at(index++)));
    }
    return result;
  }

  static std::set<size_t> positions_in_step(const RunDetails& details) {
    const Divergence& divergence = details.divergence;
    size_t more = 0;
    const std::vector<size_t> numbers = listed_numbers(divergence, more);
    std::set<size_t> positions(numbers.begin(), numbers.end());
    for (const auto& each : {divergence.input, divergence.outside, divergence.random})
      if (each) positions.insert(*each);
    if (divergence.divisor && has_collective(details.sequences)) positions.insert(*divergence.divisor);
    return positions;
  }

  /// Ranks that have finished have run these operators; the first one that another rank needs for its next effect and
  /// that is not among them is the one that they did not run.
  OpDescriptions describe_not_run(const CommonEffects& effects) {
    std::vector<uint64_t> mine;
    for (const OpEntry& entry : run_.record->entries()) mine.push_back(name_hash(*run_.record, entry));
    const auto ran = exchange_.gather_json(mine);
    if (effects.finished[exchange_.rank_index()]) return gather(std::optional<OpDescription>());
    const auto finished = static_cast<size_t>(std::ranges::find(effects.finished, true) - effects.finished.begin());
    relevant_ = run_.record->relevant_for(effects.count + 1);
    return gather(own(first_not_in(ran[finished].get<std::vector<uint64_t>>())));
  }

  /// Returns the first position whose operator does not follow in `ran` after those before it, or else the last one.
  size_t first_not_in(const std::vector<uint64_t>& ran) const {
    auto next = ran.begin();
    for (size_t position = 0; position < relevant_.size(); ++position) {
      next = std::find(next, ran.end(), name_hash(*run_.record, run_.record->entries()[relevant_[position]]));
      if (next == ran.end()) return position;
      ++next;
    }
    return relevant_.size() - 1;
  }

  OpDescriptions describe_early_reads() {
    const int32_t entry = run_.record->read_too_early();
    const std::vector<uint32_t> only = entry < 0 ? std::vector<uint32_t>() : std::vector{static_cast<uint32_t>(entry)};
    return gather(describe_op(*run_.record, only, 0, names_, {true}));
  }

  Exchange& exchange_;
  const Recording& run_;
  const TensorNames& names_;
  const LockstepOptions& options_;
  std::vector<uint32_t> relevant_;
  std::vector<bool> differs_;  // by position: outputs
};

}  // namespace

RunDetails exchange_details(Exchange& exchange, const Recording& run, const TensorNames& names,
                            const LockstepOptions& options, const std::vector<RunFacts>& facts) {
  return DetailExchange(exchange, run, names, options).run(facts);
}

std::vector<size_t> listed_numbers(const Divergence& divergence, size_t& more) {
  constexpr size_t kMost = 3;
  std::vector<size_t> listed;
  more = 0;
  for (const size_t position : divergence.numbers) {
    if (position == divergence.divisor || position == divergence.input) continue;
    if (listed.size() < kMost)
      listed.push_back(position);
    else
      ++more;
  }
  return listed;
}

bool has_collective(const std::vector<OpSequence>& sequences) {
  return std::ranges::any_of(sequences[0].ops,
                             [](const OpSequence::Op& op) { return op.flags & OpSequence::kCollective; });
}

}  // namespace lockstep::inspect
