#include "inspectors/lockstep/ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "inspectors/exchange/participants.h"
#include "inspectors/lockstep/facts.h"
#include "inspectors/lockstep/op_words.h"
#include "inspectors/lockstep/overflow.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

/// Those that are like most others, and the rest; where no majority is, all and none.
struct Vote {
  RankSet at_fault, reference;
};

Vote vote_on(const RankSet& ranks, const std::vector<std::string>& values) {
  std::map<std::string, RankSet> parties;
  for (size_t i = 0; i < values.size(); ++i) parties[values[i]].insert(ranks.ranks()[i]);
  const auto largest = std::max_element(parties.begin(), parties.end(),
                                        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (largest->second.size() * 2 > ranks.size()) return {ranks - largest->second, largest->second};
  return {ranks, {}};
}

/// The marks of one kind at a place, as votes: every rank's.
std::vector<std::string> hashes(const std::vector<json>& places, const char* which, std::optional<int> kind = {}) {
  std::vector<std::string> result;
  for (const json& place : places) {
    std::string text;
    for (const json& mark : place.at(which))
      if (!kind || mark.at("kind") == *kind)
        text += fmt::format("{:x}{} ", mark.at("hash").get<uint64_t>(), mark.at("shape").get<std::string>());
    result.push_back(std::move(text));
  }
  return result;
}

class RankComparison {
 public:
  RankComparison(Exchange& exchange, const Recording& run, const TensorNames& names, const LockstepOptions& options)
      : exchange_(exchange),
        run_(run),
        names_(names),
        options_(options),
        ranks_(exchange.ranks()),
        matters_(run.matters) {}

  /// `sequences`: every rank's, or a single one where they are equal. Collective.
  std::vector<Finding> findings(std::vector<OpSequence> sequences, const std::vector<RunFacts>& facts) {
    std::vector<int64_t> backwards;
    for (size_t i = 0; i < facts.size(); ++i) {
      backwards.push_back(facts[i].backwards);
      if (facts[i].read_too_early) early_.insert(ranks_.ranks()[i]);
    }
    std::vector<Finding> all = {finding(std::move(sequences))};
    if (all[0].verdict == "op_mismatch" &&
        std::ranges::any_of(backwards, [&](int64_t n) { return n != backwards[0]; })) {
      std::vector<std::string> texts;
      for (const int64_t count : std::set<int64_t>(backwards.begin(), backwards.end())) {
        RankSet ranks;
        for (size_t i = 0; i < backwards.size(); ++i)
          if (backwards[i] == count) ranks.insert(ranks_.ranks()[i]);
        texts.push_back(fmt::format("{} on {}", count, ranks.words()));
      }
      all[0].message += fmt::format("; backward passes in all: {}", fmt::join(texts, ", "));
    }
    for (Finding& each : notes_) all.push_back(std::move(each));
    return all;
  }

 private:
  Finding finding(std::vector<OpSequence> sequences) {
    const CommonEffects effects = common_effects(sequences);
    if (options_.cut_short() && effects.count == 0) return nothing_to_compare();
    const bool some_through = std::ranges::count(effects.through, true) > 0;
    const bool may_be_through = options_.cut_short() || std::ranges::any_of(sequences, [](const OpSequence& each) {
                                  return each.left_out > 0;
                                });
    // What matters hangs on the effects: with others, ranks are comparable only as far as these were the same. Where
    // none is through, the next of each is wanted, too: what it hangs on tells where they parted.
    if (!effects.all) sequences = cut_after(effects.count + (some_through ? 0 : 1));
    const Partings partings = find_partings(sequences);
    differs_ = outputs_that_differ(sequences, partings.common);
    if (const auto place = partings.first_fault()) {
      // In the order in which they explain one another, where several are at one place.
      if (partings.order == place) return other_operators(places(*place));
      if (partings.parameter == place) return other_parameter(*place);
      if (partings.written == place) return other_update(*place);
      return other_results(*place);
    }
    if (some_through && !may_be_through) return other_operators(lacked(effects));
    return in_step(partings, sequences);
  }

  std::vector<json> places(size_t place) {
    return exchange_.gather_json(describe_place(*run_.record, matters_, place, names_, differs_));
  }

  /// Only what the first effects hang on matters from now on.
  std::vector<OpSequence> cut_after(size_t effects) {
    matters_ = run_.record->that_matter_to(effects);
    std::vector<OpSequence> sequences;
    for (const Bytes& each : exchange_.gather(sequence_of(*run_.record, matters_).bytes()))
      sequences.push_back(OpSequence::from_bytes(each));
    return sequences;
  }

  /// Some ranks are through, and others go on: with what? With the first operator behind the next effect that a rank
  /// which is through did not run.
  std::vector<json> lacked(const CommonEffects& effects) {
    const auto ran = exchange_.gather_json(names_of_all(*run_.record));
    const auto first = std::ranges::find(effects.through, true) - effects.through.begin();
    if (effects.through[exchange_.rank_index()]) return exchange_.gather_json(nullptr);
    matters_ = run_.record->that_matter_to(effects.count + 1);
    return places(first_not_in(*run_.record, matters_, ran[static_cast<size_t>(first)].get<std::vector<uint64_t>>()));
  }

  Finding other_operators(const std::vector<json>& all) {
    std::vector<std::string> who;
    for (const json& each : all)
      who.push_back(each.is_null() ? ""
                                   : each.at("name").get<std::string>() + "|" + each.at("node").get<std::string>());
    const Vote vote = vote_on(ranks_, who);
    const json& first = all[rank_index_of(ranks_, vote.at_fault.ranks().front())];
    const json& known = *std::ranges::find_if(all, [](const json& each) { return !each.is_null(); });
    Finding finding = finding_at(first.is_null() ? known : first, "op_mismatch", "order", options_);
    take(finding, vote);
    std::vector<std::string> texts;
    std::vector<std::string> told;
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::find(told.begin(), told.end(), who[i]) != told.end()) continue;
      told.push_back(who[i]);
      RankSet same;
      for (size_t k = 0; k < all.size(); ++k)
        if (who[k] == who[i]) same.insert(ranks_.ranks()[k]);
      const std::string where = all[i].is_null() ? "" : all[i].at("where").get<std::string>();
      texts.push_back(same.words() + " " +
                      (all[i].is_null() ? (same.size() == 1 ? "is through" : "are through")
                                        : (same.size() == 1 ? "runs " : "run ") + op_text(all[i])) +
                      (where.empty() ? "" : " at " + where));
    }
    finding.message = fmt::format("ranks part at operator {} of those that count: {}", known.at("place").get<size_t>(),
                                  fmt::join(texts, ", "));
    return finding;
  }

  /// What the ranks do at a place where `which` of their operator differ.
  struct Parting {
    std::vector<json> all;
    Vote vote;
    Finding finding;
  };
  Parting part_at(size_t place, const char* kind, const char* which, std::optional<int> mark = {}) {
    Parting result{.all = places(place), .vote = {}, .finding = {}};
    result.vote = vote_on(ranks_, hashes(result.all, which, mark));
    result.finding = finding_at(result.all[0], "mismatch", kind, options_);
    take(result.finding, result.vote);
    return result;
  }

  Finding other_parameter(size_t place) {
    const int kind = static_cast<int>(OpMark::Kind::kParameter);
    auto [all, vote, finding] = part_at(place, "parameter", "inputs", kind);
    std::string name = "a parameter", values;
    for (size_t i = 0; i < all[0].at("inputs").size(); ++i) {
      const json& mark = all[0].at("inputs")[i];
      if (mark.at("kind") != kind || !differs_between(all, "inputs", i)) continue;
      name = mark_text(mark);
      values = "; " + values_text(all, "inputs", i, ranks_, "on rank");
      finding.tensors.push_back(tensor_of(mark, "parameter"));
      break;
    }
    const bool drawn = all[0].at("source") == "random";
    finding.message =
        fmt::format("{} another {}, first read by {}: the replicas had parted before{}{}", has_or_differ(vote, "reads"),
                    name, op_text(all[0]), drawn ? " (it was drawn by generators in different states)" : "", values);
    return finding;
  }

  Finding other_update(size_t place) {
    auto [all, vote, finding] = part_at(place, "update", "outputs");
    size_t index = 0;
    if (const json* mark = differing(all, "outputs", index)) finding.tensors.push_back(tensor_of(*mark, "parameter"));
    const std::string name = finding.tensors.empty() ? "a parameter" : finding.tensors[0].name;
    std::string reason;
    if (const json* input = differing(all, "inputs", index)) {
      if (input->at("kind") == static_cast<int>(OpMark::Kind::kNumber))
        reason =
            fmt::format("its {} differs: {}", mark_text(*input), values_text(all, "inputs", index, ranks_, "on rank"));
      else if (all[0].at("source") == "gradient")
        reason = fmt::format("the gradient behind it differs ({}): it has not been reduced, or not on every rank",
                             values_text(all, "inputs", index, ranks_, "on rank"));
      else if (const std::string early = read_too_early(all); !early.empty())
        reason = fmt::format("{} differs ({}): {}", mark_text(*input),
                             values_text(all, "inputs", index, ranks_, "on rank"), early);
      else if (all[0].at("source") == "collective")
        reason = fmt::format("{} differs ({}): it comes out of {}, over other ranks than these, or not for all of them",
                             mark_text(*input), values_text(all, "inputs", index, ranks_, "on rank"),
                             collective_text(all[0]));
      else
        reason = fmt::format("{} differs ({}): state of the optimizer, or data", mark_text(*input),
                             values_text(all, "inputs", index, ranks_, "on rank"));
    } else if (const std::string early = read_too_early(all); !early.empty()) {
      reason = early;
    } else {
      reason = "everything that it reads is equal";
    }
    finding.message =
        fmt::format("{} was equal, and is no longer once {} has written it: {}", name, op_text(all[0]), reason);
    return finding;
  }

  static std::string collective_text(const json& place) {
    const std::string name = place.at("collective"), where = place.at("collective_where");
    return (name.empty() ? "a collective" : name) + (where.empty() ? "" : " (" + where + ")");
  }

  /// What was read while a collective was still to write it, and on which ranks; empty where that is not so.
  std::string read_too_early(const std::vector<json>& all) const {
    RankSet early;
    const json* known = nullptr;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].is_null() || !all[i].at("in_flight").get<bool>()) continue;
      early.insert(ranks_.ranks()[i]);
      if (!known) known = &all[i];
    }
    if (!known) return {};
    return fmt::format(
        "{} was still under way on {} when it was read. Wait for it (work.wait()) before anything reads what it writes",
        collective_text(*known), early.words());
  }

  Finding other_results(size_t place) {
    auto [all, vote, finding] = part_at(place, "computation", "outputs");
    size_t index = 0;
    std::string values;
    if (const json* mark = differing(all, "outputs", index)) {
      finding.tensors.push_back(tensor_of(*mark, "output"));
      values = "; " + values_text(all, "outputs", index, ranks_, "on rank");
    }
    if (const std::string early = read_too_early(all); !early.empty()) {
      finding.message =
          fmt::format("{} other results of {}: {}{}", has_or_differ(vote, "has"), op_text(all[0]), early, values);
      return std::move(finding);
    }
    finding.message = fmt::format(
        "{} other results of {} from equal inputs: a kernel that is not deterministic, random numbers of its "
        "own, memory or hardware{}",
        has_or_differ(vote, "has"), op_text(all[0]), values);
    return finding;
  }

  Finding in_step(const Partings& partings, const std::vector<OpSequence>& sequences) {
    Finding finding;
    finding.inspector = "lockstep";
    finding.verdict = "ok";
    finding.ranks = ranks_;
    finding.step = options_.step();
    finding.message = fmt::format("{} run in step{}: {} operators", ranks_.words(),
                                  options_.cut_short() ? " as far as all of them came" : "", sequences[0].ops.size());
    if (partings.input) {
      finding.message += "; parameters are equal, data differs, as it may, from " + input_text(places(*partings.input));
      // A number explains what is computed with it. What else differs?
      const bool number = std::ranges::find(partings.numbers, *partings.input) != partings.numbers.end();
      if (number && partings.outside && *partings.outside != *partings.input)
        finding.message += "; data comes in that differs in " + input_text(places(*partings.outside), /*outside=*/true);
    } else if (!partings.drawn) {
      finding.message += ", all inputs and outputs equal bit by bit";
    }
    constexpr size_t kMostNumbers = 3;
    size_t told = 0;
    for (const size_t place : partings.numbers)
      if (place != partings.divisor && place != partings.input && told++ < kMostNumbers)
        finding.message += "; a number differs in " + input_text(places(place));
    if (told > kMostNumbers) finding.message += fmt::format(", and in {} operators more", told - kMostNumbers);
    if (partings.drawn) {
      const std::vector<json> all = places(*partings.drawn);
      finding.message += fmt::format("; each rank draws its own random numbers, first in {}", op_text(all[0]));
    }
    if (partings.divisor && has_collective(sequences)) notes_.push_back(local_counts(places(*partings.divisor)));
    if (early_ != RankSet()) notes_.push_back(early_reads());
    int64_t left_out = 0;
    for (const OpSequence& each : sequences) left_out = std::max(left_out, each.left_out);
    if (left_out > 0)
      finding.message += fmt::format("; {} operators beyond the first {} were not compared (max_operators)", left_out,
                                     options_.max_operators());
    return finding;
  }

  /// "mul (operator 7, forward) on (argument 1, value 1 on rank 0, 2 on rank 1) at cell 1, line 3": plain numbers with
  /// their values, otherwise the first input that differs; `outside`: that no operator wrote.
  std::string input_text(const std::vector<json>& all, bool outside = false) const {
    std::vector<std::string> what;
    const json& inputs = all[0].at("inputs");
    for (size_t i = 0; i < inputs.size() && !outside; ++i)
      if (inputs[i].at("kind") == static_cast<int>(OpMark::Kind::kNumber) && inputs[i].at("scalar").get<bool>() &&
          differs_between(all, "inputs", i))
        what.push_back(mark_text(inputs[i]) + ", " + values_text(all, "inputs", i, ranks_, "on rank"));
    for (size_t i = 0; i < inputs.size() && what.empty(); ++i)
      if ((!outside || inputs[i].at("outside").get<bool>()) && differs_between(all, "inputs", i))
        what.push_back(mark_text(inputs[i]));
    const std::string where = all[0].at("where");
    return op_text(all[0]) + " on" + (what.empty() ? "" : fmt::format(" ({})", fmt::join(what, "; "))) +
           (where.empty() ? "" : " at " + where);
  }

  static bool has_collective(const std::vector<OpSequence>& sequences) {
    return std::ranges::any_of(sequences[0].ops,
                               [](const OpSequence::Op& op) { return op.flags & OpSequence::kCollective; });
  }

  /// Ranks are equal, and yet what was read was not what the reduction makes.
  Finding early_reads() {
    const int32_t mine = run_.record->read_too_early();
    const std::vector<uint32_t> own = mine < 0 ? std::vector<uint32_t>() : std::vector{static_cast<uint32_t>(mine)};
    const std::vector<json> all = exchange_.gather_json(describe_place(*run_.record, own, 0, names_, {true}));
    const json& first = *std::ranges::find_if(all, [](const json& each) { return !each.is_null(); });
    Finding finding = finding_at(first, "mismatch", "in_flight", options_);
    finding.severity = Severity::note;
    finding.ranks = early_;
    finding.message = fmt::format("{}: {}", op_text(first), read_too_early(all));
    return finding;
  }

  /// The mean of means: each rank divides its loss by its own count, and then ranks are averaged.
  Finding local_counts(const std::vector<json>& all) const {
    Finding finding = finding_at(all[0], "uneven_data", "count", options_);
    finding.severity = Severity::note;
    finding.ranks = ranks_;
    std::vector<std::string> texts;
    for (size_t i = 0; i < all.size(); ++i)
      texts.push_back(fmt::format("{:.9g} on rank {}", all[i].at("divisor").get<double>(), ranks_.ranks()[i]));
    const std::string where = all[0].at("where");
    finding.message = fmt::format(
        "{}{} divides by a number of each rank's own ({}): the average over ranks of such means is not the mean over "
        "all samples. All-reduce the number, divide by it, and multiply by the number of ranks where gradients are "
        "averaged",
        op_text(all[0]), where.empty() ? "" : " at " + where, fmt::join(texts, ", "));
    return finding;
  }

  Finding nothing_to_compare() const {
    Finding finding;
    finding.inspector = "lockstep";
    finding.verdict = "unsupported";
    finding.ranks = ranks_;
    finding.step = options_.step();
    finding.message =
        fmt::format("nothing to compare on {}: not all came to a backward, a collective or an update", ranks_.words());
    return finding;
  }

  static bool differs_between(const std::vector<json>& all, const char* which, size_t index) {
    return std::any_of(all.begin(), all.end(), [&](const json& each) {
      return index >= each.at(which).size() || each.at(which)[index].at("hash") != all[0].at(which)[index].at("hash");
    });
  }

  static void take(Finding& finding, const Vote& vote) {
    finding.ranks = vote.at_fault;
    finding.reference_ranks = vote.reference;
  }

  /// "rank 2 reads", "ranks 0-1 read": who is said to do it; all where there is no majority.
  static std::string has_or_differ(const Vote& vote, const std::string& verb) {
    const bool one = vote.at_fault.size() == 1;
    const std::string plural = verb == "has" ? "have" : verb.substr(0, verb.size() - 1);
    return vote.at_fault.words() + " " + (one ? verb : vote.reference.empty() ? "each " + plural : plural);
  }

  Exchange& exchange_;
  const Recording& run_;
  const TensorNames& names_;
  const LockstepOptions& options_;
  const RankSet ranks_;
  std::vector<uint32_t> matters_;
  std::vector<bool> differs_;
  RankSet early_;
  std::vector<Finding> notes_;  // beside the first
};

RunFacts look(const Recording& run) {
  RunFacts facts{.operators = static_cast<int64_t>(run.sequence.ops.size()),
                 .left_out = run.sequence.left_out,
                 .backwards = run.record->backwards(),
                 .read_too_early = run.record->read_too_early() >= 0,
                 .may_run_over = calls_that_may_run_over(run.record->integer_reductions())};
  for (const OpSequence::Op& op : run.sequence.ops)
    facts.digest = combine(combine(facts.digest, {op.name, op.inputs}), {op.outputs, op.generator});
  return facts;
}

/// Every rank's sequence, or a single one where all are equal. Collective.
std::vector<OpSequence> sequences_of_all(Exchange& exchange, const Recording& run, const std::vector<RunFacts>& facts) {
  if (std::ranges::all_of(facts, [&](const RunFacts& each) { return each.same_run(facts[0]); })) return {run.sequence};
  std::vector<OpSequence> sequences;
  for (const Bytes& each : exchange.gather(run.sequence.bytes())) sequences.push_back(OpSequence::from_bytes(each));
  return sequences;
}

}  // namespace

Report compare_ranks(const Recording& run, const TensorNames& names, const LockstepOptions& options,
                     const char* function) {
  Report report;
  Inspection inspection = inspection_of(run, options, function);
  if (!inspection.takes_part()) return report;
  const RunFacts mine = look(run);
  if (const auto facts = inspection.exchange_facts(mine)) {
    Exchange& exchange = inspection.exchange();
    RankComparison comparison(exchange, run, names, options);
    inspection.add(comparison.findings(sequences_of_all(exchange, run, *facts), *facts));
    inspection.add(reductions_that_ran_over(exchange, run.record->integer_reductions(), *facts, options));
  }
  conclude(inspection, run, report);
  return report;
}

}  // namespace lockstep::inspect
