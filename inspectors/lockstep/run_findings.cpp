#include "inspectors/lockstep/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "inspectors/findings/majority.h"
#include "inspectors/lockstep/op_text.h"

namespace lockstep::inspect {
namespace {

constexpr Marks kInputs = &OpDescription::inputs;
constexpr Marks kOutputs = &OpDescription::outputs;

const OpDescription& first_present(const OpDescriptions& ops) {
  return **std::ranges::find_if(ops, [](const auto& each) { return each.has_value(); });
}

/// Returns, by rank index, the hashes and shapes of the marks, of one kind or of all.
std::vector<std::string> hash_texts(const OpDescriptions& ops, Marks marks, std::optional<OpMark::Kind> kind) {
  std::vector<std::string> result;
  for (const auto& op : ops) {
    std::string text;
    for (const MarkDescription& mark : (*op).*marks)
      if (!kind || mark.kind == *kind) text += fmt::format("{:x}{} ", mark.hash, mark.shape);
    result.push_back(std::move(text));
  }
  return result;
}

/// Returns " at cell 7, line 4"; empty for an unknown line.
std::string at_line(const OpDescription& op) { return op.where.empty() ? "" : " at " + op.where; }

class RunFindings {
 public:
  RunFindings(const About& about, const RunDetails& details, const std::vector<RunFacts>& facts,
              const LockstepOptions& options)
      : about_(about), details_(details), facts_(facts), options_(options) {}

  std::vector<Finding> run() {
    switch (details_.relation) {
      case RunRelation::nothing_in_common:
        add(nothing_in_common());
        break;
      case RunRelation::diverged:
        add(diverged(*details_.divergence.first_fault()));
        break;
      case RunRelation::ended_early:
        add(other_operators(details_.not_run));
        break;
      case RunRelation::in_step:
        add(in_step());
        if (details_.divergence.divisor && has_collective(details_.sequences)) add(local_divisors());
        if (!details_.read_too_early.empty()) add(early_reads());
        break;
    }
    return std::move(findings_);
  }

 private:
  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  Finding nothing_in_common() const {
    Finding finding = about_.finding(Severity::note, Verdict::unsupported);
    finding.message = fmt::format(
        "nothing to compare on {}: not all ranks reached a backward, a collective or an update", about_.ranks.words());
    return finding;
  }

  /// Several kinds of divergence can have the same position: the first one here explains the others.
  Finding diverged(size_t position) const {
    const OpDescriptions& ops = details_.ops.at(position);
    const Divergence& divergence = details_.divergence;
    if (divergence.order == position) return other_operators(ops);
    if (divergence.parameter == position) return other_parameter(ops);
    if (divergence.update == position) return other_update(ops);
    return other_results(ops);
  }

  /// `ops` has nothing for ranks that have finished.
  Finding other_operators(const OpDescriptions& ops) const {
    std::vector<std::string> names;
    for (const auto& each : ops) names.push_back(each ? each->name + "|" + each->node : "");
    const Majority majority = majority_of(about_.ranks, names);
    const auto at_fault =
        static_cast<size_t>(std::ranges::find(about_.ranks, majority.at_fault.ranks().front()) - about_.ranks.begin());
    const OpDescription& known = first_present(ops);
    Finding finding = finding_at(about_, ops[at_fault].value_or(known), Verdict::op_mismatch, FindingKind::order);
    set_ranks(finding, majority);
    std::vector<std::string> texts, listed;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (std::ranges::find(listed, names[i]) != listed.end()) continue;
      listed.push_back(names[i]);
      RankSet same;
      for (size_t k = 0; k < ops.size(); ++k)
        if (names[k] == names[i]) same.insert(about_.rank_at(k));
      const bool one = same.size() == 1;
      texts.push_back(
          ops[i] ? fmt::format("{} {} {}{}", same.words(), one ? "runs" : "run", op_text(*ops[i]), at_line(*ops[i]))
                 : fmt::format("{} {} finished", same.words(), one ? "has" : "have"));
    }
    const std::string autocast = different_autocast(ops);
    finding.message = fmt::format("ranks run different operators from compared operator {} on: {}{}{}", known.position,
                                  fmt::join(texts, ", "), backward_passes(),
                                  autocast.empty() ? "" : fmt::format("; they run {}", autocast));
    return finding;
  }

  /// Returns "with autocast bfloat16 on rank 1, without autocast on rank 0"; empty if all ranks have the same.
  std::string different_autocast(const OpDescriptions& ops) const {
    std::vector<std::string> dtypes;
    RankSet ranks;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i]) continue;
      dtypes.push_back(ops[i]->autocast);
      ranks.insert(about_.rank_at(i));
    }
    const auto by_dtype = ranks_by_value(ranks, dtypes);
    if (by_dtype.size() < 2) return "";
    std::vector<std::string> texts;
    for (const auto& [dtype, some] : by_dtype)
      texts.push_back((dtype.empty() ? "without autocast on " : fmt::format("with autocast {} on ", dtype)) +
                      some.words());
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  /// Different numbers of backward passes explain different operators.
  std::string backward_passes() const {
    std::vector<int64_t> counts;
    for (const RunFacts& each : facts_) counts.push_back(each.backwards);
    const auto by_count = ranks_by_value(about_.ranks, counts);
    if (by_count.size() < 2) return "";
    std::vector<std::string> texts;
    for (const auto& [count, ranks] : by_count) texts.push_back(fmt::format("{} on {}", count, ranks.words()));
    return fmt::format("; backward passes in total: {}", fmt::join(texts, ", "));
  }

  /// Makes a finding about `ops`, whose ranks are those that differ from the majority in `marks`.
  Finding mismatch(const OpDescriptions& ops, FindingKind kind, Marks marks,
                   std::optional<OpMark::Kind> mark_kind = {}) const {
    Finding finding = finding_at(about_, ops[0], Verdict::mismatch, kind);
    set_ranks(finding, majority_of(about_.ranks, hash_texts(ops, marks, mark_kind)));
    return finding;
  }

  Finding other_parameter(const OpDescriptions& ops) const {
    Finding finding = mismatch(ops, FindingKind::parameter, kInputs, OpMark::Kind::kParameter);
    std::string name = "a parameter", values;
    const auto& inputs = ops[0]->inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].kind != OpMark::Kind::kParameter || !values_differ(ops, kInputs, i)) continue;
      name = mark_text(inputs[i]);
      values = "; " + values_of(ops, kInputs, i);
      finding.tensors.push_back(tensor_of(inputs[i], "parameter"));
      break;
    }
    const bool drawn = ops[0]->source == DifferenceSource::random;
    finding.message = fmt::format("{}, first in {}: the replicas had diverged before this step{}{}",
                                  differ(finding, "reads", "values of " + name), op_text(*ops[0]),
                                  drawn ? " (its values were drawn by generators in different states)" : "", values);
    return finding;
  }

  Finding other_update(const OpDescriptions& ops) const {
    Finding finding = mismatch(ops, FindingKind::update, kOutputs);
    if (const auto index = first_difference(ops, kOutputs))
      finding.tensors.push_back(tensor_of(ops[0]->outputs[*index], "parameter"));
    const std::string name = finding.tensors.empty() ? "a parameter" : finding.tensors[0].name;
    finding.message =
        fmt::format("{} was equal before {} and differs after it: {}", name, op_text(*ops[0]), reason_of_update(ops));
    return finding;
  }

  std::string reason_of_update(const OpDescriptions& ops) const {
    const std::string early = read_too_early(ops);
    const auto index = first_difference(ops, kInputs);
    if (!index) return early.empty() ? "all its inputs are equal" : early;
    const OpDescription& op = *ops[0];
    const MarkDescription& input = op.inputs[*index];
    const std::string name = mark_text(input), values = values_of(ops, kInputs, *index);
    if (input.kind == OpMark::Kind::kNumber) return fmt::format("its {} differs: {}", name, values);
    if (op.source == DifferenceSource::gradient)
      return fmt::format("its gradient differs ({}): not reduced, or not on every rank", values);
    if (!early.empty()) return fmt::format("{} differs ({}): {}", name, values, early);
    if (op.source == DifferenceSource::collective)
      return fmt::format("{} differs ({}): {} wrote it, over other ranks, or gave its result to some ranks only", name,
                         values, collective_text(op));
    return fmt::format("{} differs ({}): state of the optimizer, or data", name, values);
  }

  Finding other_results(const OpDescriptions& ops) const {
    Finding finding = mismatch(ops, FindingKind::computation, kOutputs);
    std::string values;
    if (const auto index = first_difference(ops, kOutputs)) {
      finding.tensors.push_back(tensor_of(ops[0]->outputs[*index], "output"));
      values = "; " + values_of(ops, kOutputs, *index);
    }
    const std::string what = differ(finding, "gets", "results from " + op_text(*ops[0]));
    const std::string early = read_too_early(ops), autocast = different_autocast(ops);
    if (!autocast.empty()) {
      finding.message = fmt::format("{}: it runs {}{}", what, autocast, values);
      return finding;
    }
    finding.message = early.empty()
                          ? fmt::format(
                                "{}, although its inputs are equal: a nondeterministic kernel, a generator of its "
                                "own, memory or hardware{}",
                                what, values)
                          : fmt::format("{}: {}{}", what, early, values);
    return finding;
  }

  Finding in_step() const {
    const Divergence& divergence = details_.divergence;
    const auto& sequences = details_.sequences;
    Finding finding = about_.finding(Severity::note, Verdict::ok);
    finding.message = fmt::format("{} run in step{}: {} operators", about_.ranks.words(),
                                  options_.cut_short() ? " as far as all of them came" : "", sequences[0].ops.size());
    if (divergence.input) {
      finding.message += "; parameters are equal, data differs (as it may) from " +
                         input_text(details_.ops.at(*divergence.input)) + " on";
      // A number explains what is computed with it, so other input data that differs is named as well.
      const bool number = std::ranges::find(divergence.numbers, *divergence.input) != divergence.numbers.end();
      if (number && divergence.outside && divergence.outside != divergence.input)
        finding.message += "; input data differs in " + input_text(details_.ops.at(*divergence.outside), true);
    } else if (!divergence.random) {
      finding.message += ", all inputs and outputs equal bit by bit";
    }
    size_t more = 0;
    for (const size_t position : listed_numbers(divergence, more))
      finding.message += "; an argument differs in " + input_text(details_.ops.at(position));
    if (more > 0) finding.message += fmt::format(", and in {} more operators", more);
    if (divergence.random)
      finding.message += fmt::format("; each rank draws its own random numbers, first in {}",
                                     op_text(*details_.ops.at(*divergence.random)[0]));
    int64_t left_out = 0;
    for (const OpSequence& each : sequences) left_out = std::max(left_out, each.left_out);
    if (left_out > 0)
      finding.message += fmt::format("; {} operators beyond the first {} were not compared (max_operators)", left_out,
                                     options_.max_operators());
    return finding;
  }

  /// Returns "mul (operator 7, forward) (argument 'other', value 1 on rank 0, 2 on rank 1) at cell 1, line 3": settings
  /// that differ, otherwise the first input that differs; with `outside`, the first that no operator wrote.
  std::string input_text(const OpDescriptions& ops, bool outside = false) const {
    std::vector<std::string> what;
    const auto& inputs = ops[0]->inputs;
    const auto is_number = [&](size_t i) { return inputs[i].kind == OpMark::Kind::kNumber; };
    const auto text = [&](size_t i) {
      return mark_text(inputs[i]) + (is_number(i) ? ", " + values_of(ops, kInputs, i) : "");
    };
    for (size_t i = 0; i < inputs.size() && !outside; ++i)
      if (is_number(i) && inputs[i].setting && values_differ(ops, kInputs, i)) what.push_back(text(i));
    for (size_t i = 0; i < inputs.size() && what.empty(); ++i)
      if ((!outside || inputs[i].outside) && values_differ(ops, kInputs, i)) what.push_back(text(i));
    return op_text(*ops[0]) + (what.empty() ? "" : fmt::format(" ({})", fmt::join(what, "; "))) + at_line(*ops[0]);
  }

  /// Each rank divides its loss by its own count before ranks are averaged: the mean of means.
  Finding local_divisors() const {
    const OpDescriptions& ops = details_.ops.at(*details_.divergence.divisor);
    Finding finding = finding_at(about_, ops[0], Verdict::uneven_data, FindingKind::count);
    finding.severity = Severity::note;
    std::vector<std::string> texts;
    for (size_t i = 0; i < ops.size(); ++i)
      texts.push_back(fmt::format("{:.9g} on rank {}", ops[i]->divisor, about_.rank_at(i)));
    finding.message = fmt::format(
        "{}{} divides by a different number on each rank ({}): the average of these means over ranks is not the mean "
        "over all samples. All-reduce the number, divide by the sum, and multiply by the number of ranks if gradients "
        "are averaged",
        op_text(*ops[0]), at_line(*ops[0]), fmt::join(texts, ", "));
    return finding;
  }

  /// All ranks are equal, but what they read was not yet the result of the reduction.
  Finding early_reads() const {
    const OpDescription& first = first_present(details_.read_too_early);
    Finding finding = finding_at(about_, first, Verdict::mismatch, FindingKind::in_flight);
    finding.severity = Severity::note;
    finding.ranks = {};
    for (size_t i = 0; i < facts_.size(); ++i)
      if (facts_[i].read_too_early) finding.ranks.insert(about_.rank_at(i));
    finding.message = fmt::format("{}: {}", op_text(first), read_too_early(details_.read_too_early));
    return finding;
  }

  /// Says on which ranks `ops` read the result of a collective that was still running; empty if none did.
  std::string read_too_early(const OpDescriptions& ops) const {
    RankSet early;
    const OpDescription* known = nullptr;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i] || !ops[i]->in_flight) continue;
      early.insert(about_.rank_at(i));
      if (!known) known = &*ops[i];
    }
    if (!known) return {};
    return fmt::format("{} was still running on {} when its result was read. Call work.wait() before reading it",
                       collective_text(*known), early.words());
  }

  static std::string collective_text(const OpDescription& op) {
    return (op.collective.empty() ? "a collective" : op.collective) +
           (op.collective_where.empty() ? "" : " (" + op.collective_where + ")");
  }

  std::string values_of(const OpDescriptions& ops, Marks marks, size_t index) const {
    return values_text(ops, marks, index, about_.ranks, "on rank");
  }

  static void set_ranks(Finding& finding, const Majority& majority) {
    finding.ranks = majority.at_fault;
    finding.reference_ranks = majority.reference;
  }

  /// Returns "rank 2 reads other values of weight than ranks 0-1", or without a majority "ranks 0-1 read different
  /// values of weight". `verb` is in the singular.
  static std::string differ(const Finding& finding, const std::string& verb, const std::string& what) {
    const std::string verb_form = finding.ranks.size() == 1 ? verb : verb.substr(0, verb.size() - 1);
    if (finding.reference_ranks.empty())
      return fmt::format("{} {} different {}", finding.ranks.words(), verb_form, what);
    return fmt::format("{} {} other {} than {}", finding.ranks.words(), verb_form, what,
                       finding.reference_ranks.words());
  }

  const About& about_;
  const RunDetails& details_;
  const std::vector<RunFacts>& facts_;
  const LockstepOptions& options_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> run_findings(const About& about, const RunDetails& details, const std::vector<RunFacts>& facts,
                                  const LockstepOptions& options) {
  return RunFindings(about, details, facts, options).run();
}

}  // namespace lockstep::inspect
