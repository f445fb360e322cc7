#include "inspectors/compare/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "inspectors/compare/causes.h"
#include "inspectors/compare/data.h"
#include "inspectors/compare/replacements.h"
#include "inspectors/compare/words.h"
#include "protocol/error.h"

namespace lockstep::inspect::compare {
namespace {

std::vector<Pieces> pieces_of(const std::vector<Run>& runs) { return {runs.begin(), runs.end()}; }

void check_steps(const Run& reference, const Run& candidate) {
  for (const Run* each : {&reference, &candidate})
    for (const Recording& rank : each->ranks)
      if (rank.steps == 0)
        throw Error(fmt::format("{} has no whole step: {}", rank.path,
                                rank.damaged_at    ? damage_words(rank)
                                : rank.is_complete ? "no optimizer has made a step"
                                                   : "the process has ended before"));
}

bool has_samples(const Run& run) {
  return std::ranges::any_of(run.ranks, [](const Recording& each) {
    return std::ranges::any_of(each.samples, [](const Samples& samples) { return !samples.hashes.empty(); });
  });
}

/// Which ranks share samples says how their values make up the reference's.
void check_samples(const Run& reference, const Run& candidate) {
  if (candidate.ranks.size() == 1) return;
  for (const Run* each : {&reference, &candidate})
    if (!has_samples(*each))
      throw Error(
          each->ranks.front().path +
          " has no samples: the model is given no tensor that could be recorded, so how the ranks share them is "
          "not known");
}

/// What a perturbed run begins with is not perturbed. With other weights or samples it shows more than what rounding does.
void check_beginning(const Recording& reference, const Recording& perturbed) {
  const auto fail = [&](const std::string& what) {
    throw Error(
        fmt::format("{} begins with other {} than the reference: a perturbed run is the reference's training "
                    "once more, from the same seed, with the model made anew",
                    perturbed.path, what));
  };
  std::map<std::string, const Piece*> initial;
  for (const Piece& each : perturbed.pieces)
    if (each.kind == PieceKind::initial) initial.emplace(perturbed.names[each.name].name, &each);
  for (const Piece& each : reference.pieces) {
    if (each.kind != PieceKind::initial) continue;
    const auto same = initial.find(reference.names[each.name].name);
    if (same != initial.end() && error_between(each, *same->second) != 0) fail("weights");
  }
  const auto first_samples = [](const Recording& recording) {
    return recording.samples.empty() ? std::vector<uint64_t>() : recording.samples.front().hashes;
  };
  const std::vector<uint64_t> samples = first_samples(reference), others = first_samples(perturbed);
  if (!samples.empty() && !others.empty() && samples != others) fail("samples");
}

/// Returns what a rank has of a micro-batch; null: nothing.
const RankPiece* piece_of(const std::vector<RankPiece>& pieces, int rank, uint32_t micro_batch) {
  const auto found = std::ranges::find_if(
      pieces, [&](const RankPiece& each) { return each.rank == rank && each.piece->micro_batch == micro_batch; });
  return found == pieces.end() ? nullptr : &*found;
}

/// Returns what the tolerance is, in words.
std::string unit_of(bool has_perturbed, const JudgeOptions& options) {
  if (has_perturbed) return "what rounding explains";
  return options.rtol.value_or(0) > 0 ? "--rtol" : "";
}

/// Judges value by value in the order of the reference.
class Judge {
 public:
  Judge(const Run& reference, const std::vector<Run>& perturbed, const Run& candidate, const JudgeOptions& options)
      : recording_(reference.ranks.front()),
        candidate_run_(candidate),
        reference_run_(reference),
        reference_(reference),
        candidate_(candidate),
        tolerances_(tolerances(reference_, pieces_of(perturbed), options.factor, options.rtol.value_or(0))),
        writer_(options.writer) {
    if (options.replacements) replacements_.emplace(*options.replacements);
    result_.is_replaced = replacements_.has_value();
    result_.steps = std::min(reference.steps(), candidate.steps());
    result_.unit = unit_of(!perturbed.empty(), options);
    is_all_compared_ = has_samples(reference);
  }

  Comparison run() {
    for (uint32_t step = 0; step < static_cast<uint32_t>(result_.steps); ++step) judge_step(step);
    add_likewise(likewise_, result_.findings);
    add_notes(reference_run_, candidate_run_, result_);
    return std::move(result_);
  }

 private:
  void judge_step(uint32_t step) {
    const Layout layout = layout_of(candidate_run_, step), of_reference = layout_of(reference_run_, step);
    Rows rows;
    std::optional<Finding> data = compare_data(of_reference, layout, step, rows);
    CandidateStep candidate{.layout = layout, .rows = rows};
    candidate.scale = 1.0 / layout.data_parallel();
    for (const PieceKey& key : reference_.order()) {
      if (key.step != step) continue;
      if (data && key.kind != PieceKind::initial) {  // other data, and so other values everywhere
        report("samples", [&] { return std::move(*data); });
        ++result_.differing;
        return;
      }
      judge_key(key, of_reference, candidate);
    }
    for (const PieceKey& key : candidate_.order())
      if (key.step == step && reference_.of(key).empty()) add_value(result_.only_in_candidate, key);
  }

  ReferenceValue value_of(const PieceKey& key, const Layout& layout) const {
    ReferenceValue value;
    double squares = 0;
    for (const RankPiece& each : reference_.of(key)) {
      if (each.piece->flags & Piece::absent) continue;
      if (each.piece->values_at == 0 && count_of(each.piece->box.size) > 0)
        throw Error(recording_.path + " has sketches only: a reference is recorded with its values");
      if (each.piece->box.size != each.piece->box.shape)
        throw Error(fmt::format("{} has only a part of {}: a reference is one process that has all of it",
                                recording_.path, value_words(key)));
      Whole whole{.element = each.piece->element, .shape = each.piece->box.shape};
      if (count_of(whole.shape) > 0) whole.bytes = recording_.values(*each.piece);
      whole.samples = static_cast<int64_t>(layout.samples_of(0, each.piece->micro_batch));
      squares += dot(each.piece->summary.sums, each.piece->summary.sums);
      value.micro_batches.push_back(std::move(whole));
    }
    value.norm = std::sqrt(squares);
    return value;
  }

  void judge_key(const PieceKey& key, const Layout& of_reference, CandidateStep& step) {
    const double tolerance = tolerances_.at(key);
    const std::vector<RankPiece>& pieces = candidate_.of(key);
    const ReferenceValue reference = value_of(key, of_reference);
    RankSet absent;
    for (const RankPiece& each : pieces)
      if (each.piece->flags & Piece::absent) absent.insert(each.rank);
    const std::vector<int64_t> recorded = recorded_rows(of_reference, reference_.of(key));
    const RankSet without = ranks_without(key, recorded, step);
    if (!without.empty()) {
      add_value(result_.not_recorded, key, pieces.empty() ? RankSet() : without);
      is_all_compared_ = false;
      if (pieces.empty()) {
        const bool has_parameter = !candidate_.of({0, PieceKind::initial, key.name, 0}).empty();
        if (key.kind == PieceKind::gradient && has_parameter && !reference.micro_batches.empty())
          count_difference(key, without, [&] { return finding_of_unread(key, without); });
        return;
      }
    }
    if (reference.micro_batches.empty()) {  // a parameter without a gradient
      if (absent.size() < pieces.size())
        count_difference(key, all_ranks(step) - absent, [&] { return finding_of_extra(key, absent, pieces); });
      return;
    }
    if (!absent.empty()) {
      count_difference(key, absent, [&] { return finding_of_absent(key, absent); });
      return;
    }
    const bool has_rows = key.kind == PieceKind::forward || key.kind == PieceKind::backward;
    const std::optional<Rows> rows = has_rows ? rows_among(recorded, pieces, step.rows) : Rows();
    if (!rows) {
      add_value(result_.only_in_candidate, key);
      is_all_compared_ = false;
      return;
    }
    if (!(tolerance < kSaysNothing)) {
      add_value(result_.says_nothing, key);
      result_.has_silent_loss = result_.has_silent_loss || key.kind == PieceKind::loss;
      is_all_compared_ = false;
      return;
    }
    if (without.empty()) compared_.insert(key);  // taken back where it differs and goes on
    CandidateStep judged{.layout = step.layout, .rows = *rows, .scale = step.scale};
    if (writer_) judged.tolerance = tolerance;
    std::vector<JudgedValue> values = judged_values(key, pieces, reference, judged);
    if (key.kind == PieceKind::loss && step.layout.data_parallel() > 1) {
      const SumOrMean is = sum_or_mean(values, tolerance, step);
      has_clear_scale_ = is != SumOrMean::unclear;
      if (is == SumOrMean::sum) {
        step.scale = judged.scale = 1;
        values = judged_values(key, pieces, reference, judged);
      }
    }
    if (writer_ && (key.kind != PieceKind::backward || has_clear_scale_))
      for (const JudgedValue& each : values) writer_->add(key, each);
    std::vector<const JudgedValue*> differing;
    for (const JudgedValue& each : values) {
      ++result_.compared;
      if (each.fits && each.error <= std::max(tolerance, each.resolution)) {
        if (tolerance > 0) result_.largest = std::max(result_.largest, each.error / tolerance);
        continue;
      }
      differing.push_back(&each);
    }
    if (differing.empty()) return;
    result_.differing += differing.size();
    const bool is_all_before_compared = is_all_compared_;
    note_not_replaced(key, ranks_not_replaced(key, differing));
    if (!is_to_be_reported(key)) return;
    const Wrong wrong{key,
                      values,
                      std::move(differing),
                      reference,
                      step.layout,
                      tolerance,
                      reference_.type_of(key.name),
                      is_all_before_compared,
                      is_update_compared(key)};
    const Cause cause = cause_of(wrong);
    if (!is_like_an_earlier_one(wrong, cause))
      report(value_words(key), [&] { return finding_of(wrong, cause, result_.unit); });
  }

  static RankSet all_ranks(const CandidateStep& step) {
    RankSet all;
    for (const RankSet& each : step.layout.groups) all = all | each;
    return all;
  }

  /// Returns the ranks that have recorded something in the step, and not all of this that the reference has.
  RankSet ranks_without(const PieceKey& key, const std::vector<int64_t>& recorded, const CandidateStep& step) const {
    const std::vector<RankPiece>& pieces = candidate_.of(key);
    RankSet without;
    for (const RankSet& group : step.layout.groups)
      for (const int rank : group)
        if (std::ranges::find(pieces, rank, &RankPiece::rank) == pieces.end()) without.insert(rank);
    if (key.kind != PieceKind::forward) return without;  // not every micro-batch has a loss
    for (const auto& [batch, samples] : step.layout.batches) {
      const auto rows = step.rows.find(batch);
      const bool is_in_reference =
          rows == step.rows.end()
              ? piece_of(reference_.of(key), 0, batch.second) != nullptr
              : std::ranges::all_of(rows->second, [&](int64_t row) { return recorded[static_cast<size_t>(row)] >= 0; });
      if (is_in_reference && !piece_of(pieces, batch.first, batch.second)) without.insert(batch.first);
    }
    return without;
  }

  /// Whether the gradient of a parameter, and its value before the step, were compared on all ranks.
  bool is_update_compared(const PieceKey& key) const {
    const PieceKey before = key.step == 0 ? PieceKey{0, PieceKind::initial, key.name, 0}
                                          : PieceKey{key.step - 1, PieceKind::parameter, key.name, 0};
    return compared_.contains({key.step, PieceKind::gradient, key.name, 0}) && compared_.contains(before);
  }

  enum class SumOrMean { mean, sum, unclear };

  /// Whether the losses of ranks add up to that of the batch, where others are the means of a rank's samples. Losses that are
  /// wrong are taken as means; where gradients are replaced, as what they are nearer to by far.
  SumOrMean sum_or_mean(const std::vector<JudgedValue>& values, double tolerance, const CandidateStep& step) const {
    double as_mean = 0, as_sum = 0;
    for (const JudgedValue& each : values) {
      const double apart = norm(difference(each.summary.sums, 1 / step.scale, each.part.sums));
      as_mean = std::max(as_mean, each.fits ? each.error : INFINITY);
      as_sum = std::max(as_sum, apart == 0 ? 0 : apart / norm(each.part.sums));
    }
    if (as_mean <= tolerance) return SumOrMean::mean;
    if (as_sum <= tolerance) return SumOrMean::sum;
    if (!writer_ && !replacements_) return SumOrMean::mean;
    if (std::isinf(as_mean)) return SumOrMean::unclear;  // NaN
    return as_mean < kClearlyNearer * as_sum   ? SumOrMean::mean
           : as_sum < kClearlyNearer * as_mean ? SumOrMean::sum
                                               : SumOrMean::unclear;
  }

  /// Counts a difference that is not one of values: a tensor is there, or not.
  template <typename Make>
  void count_difference(const PieceKey& key, const RankSet& ranks, const Make& make) {
    ++result_.compared;
    ++result_.differing;
    report(value_words(key), make);
    note_not_replaced(key, ranks);
  }

  /// These ranks have gone on with what differs.
  void note_not_replaced(const PieceKey& key, const RankSet& ranks) {
    if (!replacements_ || ranks.empty()) return;
    add_value(result_.not_replaced, key, ranks);
    compared_.erase(key);
    is_all_compared_ = false;
  }

  /// Returns the ranks whose values have no replacement.
  RankSet ranks_not_replaced(const PieceKey& key, const std::vector<const JudgedValue*>& values) const {
    RankSet ranks;
    if (!replacements_ || key.kind == PieceKind::loss) return ranks;
    for (const JudgedValue* each : values)
      for (const int rank : each->ranks)
        if (!piece_of(replacements_->of(key), rank, each->micro_batch) || could_not_be_replaced(rank, key.name))
          ranks.insert(rank);
    return ranks;
  }

  bool could_not_be_replaced(int rank, const std::string& name) const {
    const std::vector<std::string>& notes = candidate_run_.ranks[static_cast<size_t>(rank)].notes;
    return std::ranges::find(notes, name + kNotReplaced) != notes.end();
  }

  /// The first difference; where values were replaced, each that was not there in an earlier step.
  bool is_to_be_reported(const PieceKey& key) const {
    return reported_.empty() || (replacements_ && !reported_.contains(value_words(key)));
  }

  /// Adds the value to an earlier finding that has the same cause; without one, the same factor or ranks. Every output has a
  /// finding of its own.
  bool is_like_an_earlier_one(const Wrong& wrong, const Cause& cause) {
    if (wrong.key.kind == PieceKind::forward && !cause.is_meant) return false;
    std::string words = cause.words;
    if (words.empty()) words = fmt::format("{} {:.6g}", name_of(wrong.key.kind), cause.factor.value_or(0));
    if (cause.words.empty() && !cause.factor)
      for (const JudgedValue* each : wrong.differing) words += fmt::format(" {}", each->ranks.words());
    const auto [same, is_first] = first_of_cause_.try_emplace(words, result_.findings.size());
    if (is_first) return false;
    reported_.insert(value_words(wrong.key));
    likewise_[same->second].push_back(value_words(wrong.key));
    result_.findings[same->second].tensors.push_back(tensor_of(wrong.key, *wrong.differing.front()->piece));
    return true;
  }

  template <typename Make>
  void report(const std::string& what, const Make& make) {
    if (!reported_.empty() && !replacements_) return;
    if (reported_.insert(what).second) result_.findings.push_back(make());
  }

  const Recording& recording_;
  const Run &candidate_run_, &reference_run_;
  const Pieces reference_, candidate_;
  const std::map<PieceKey, double> tolerances_;
  Comparison result_;
  std::set<PieceKey> compared_;  // on all ranks
  bool is_all_compared_ = true;  // of what came before
  bool has_clear_scale_ = true;  // the losses of the step add up, or are means
  ReplacementWriter* const writer_;
  std::optional<Pieces> replacements_;  // of a candidate whose values were replaced
  std::set<std::string> reported_;  // values, in words
  std::map<std::string, size_t> first_of_cause_;  // its finding
  std::map<size_t, std::vector<std::string>> likewise_;  // other values of the same cause, by the finding of the first
};

}  // namespace

Comparison judge(const Run& reference, const std::vector<Run>& perturbed, const Run& candidate,
                 const JudgeOptions& options) {
  if (reference.ranks.size() != 1)
    throw Error(fmt::format("the reference has {} ranks: it is the training of one process, on the whole batch",
                            reference.ranks.size()));
  if (!reference.ranks.front().about.has_values)
    throw Error(reference.ranks.front().path + " has sketches only: a reference is recorded with its values");
  check_steps(reference, candidate);
  check_samples(reference, candidate);
  for (const Run& each : perturbed) {
    if (each.ranks.size() != 1 || each.steps() < std::min(reference.steps(), candidate.steps()))
      throw Error(each.ranks.front().path + ": a perturbed run has fewer steps than the reference");
    check_beginning(reference.ranks.front(), each.ranks.front());
  }
  return Judge(reference, perturbed, candidate, options).run();
}

Comparison judge_same_layout(const Run& reference, const Run& candidate, const JudgeOptions& options) {
  if (reference.ranks.size() != candidate.ranks.size())
    throw Error(
        fmt::format("the runs have {} and {} ranks: without the values of a reference of one process, only runs of one "
                    "layout can be compared",
                    reference.ranks.size(), candidate.ranks.size()));
  check_steps(reference, candidate);
  Comparison result;
  result.steps = std::min(reference.steps(), candidate.steps());
  result.unit = unit_of(false, options);
  const double allowed = options.rtol.value_or(0);
  const Pieces of_reference(reference), of_candidate(candidate);
  bool has_fault = false;
  const auto add_fault = [&](Finding finding) {
    if (!has_fault) result.findings.push_back(std::move(finding));
    has_fault = true;
  };
  std::set<uint32_t> other_data;
  for (const PieceKey& key : of_reference.order()) {
    if (key.step >= result.steps) continue;
    if (key.kind != PieceKind::initial && !has_fault && other_data.insert(key.step).second) {
      if (auto data = compare_same_data(layout_of(reference, key.step), layout_of(candidate, key.step), key.step)) {
        ++result.differing;
        add_fault(std::move(*data));
      }
    }
    const std::vector<RankPiece>& others = of_candidate.of(key);
    if (others.empty()) {
      add_value(result.not_recorded, key);
      continue;
    }
    RankSet ranks, missing;
    double largest = 0;
    for (const RankPiece& each : of_reference.of(key)) {
      const RankPiece* same = piece_of(others, each.rank, each.piece->micro_batch);
      ++result.compared;
      const double error = same ? error_between(*each.piece, *same->piece) : INFINITY;
      if (error <= allowed) {
        if (allowed > 0) result.largest = std::max(result.largest, error / allowed);
        continue;
      }
      ++result.differing;
      (same ? ranks : missing).insert(each.rank);
      if (same) largest = std::max(largest, error);
    }
    if (!ranks.empty())
      add_fault(finding_of_pair(key, *others.front().piece, ranks, largest, allowed, result.unit));
    else if (!missing.empty())
      add_fault(finding_of_missing(key, missing));
  }
  for (const PieceKey& key : of_candidate.order()) {
    if (key.step >= result.steps) continue;
    const std::vector<RankPiece>& others = of_reference.of(key);
    RankSet ranks;
    for (const RankPiece& each : of_candidate.of(key))
      if (!piece_of(others, each.rank, each.piece->micro_batch)) ranks.insert(each.rank);
    if (!ranks.empty()) add_value(result.only_in_candidate, key, others.empty() ? RankSet() : ranks);
  }
  add_notes(reference, candidate, result);
  return result;
}

}  // namespace lockstep::inspect::compare
