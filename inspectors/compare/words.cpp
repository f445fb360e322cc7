#include "inspectors/compare/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep::inspect::compare {
namespace {

constexpr size_t kMostNames = 6;

FindingKind kind_of(PieceKind kind) {
  switch (kind) {
    case PieceKind::initial:
    case PieceKind::parameter:
      return FindingKind::parameter;
    case PieceKind::forward:
      return FindingKind::forward;
    case PieceKind::loss:
      return FindingKind::value;
    case PieceKind::backward:
      return FindingKind::backward;
    case PieceKind::gradient:
      return FindingKind::gradient;
  }
  return FindingKind::value;
}

Finding fault_of(const PieceKey& key, const RankSet& ranks) {
  return {.severity = Severity::fault,
          .step = key.step,
          .inspector = "compare",
          .verdict = Verdict::mismatch,
          .ranks = ranks,
          .object = key.name,
          .kind = kind_of(key.kind)};
}

FindingTensor tensor_of(const PieceKey& key, const Piece& piece) {
  return {.name = key.name, .dtype = name_of(piece.element), .shape = piece.box.size};
}

/// Returns "2.3e-03", or how else numbers of this size are read best.
std::string times(double factor) {
  return factor < 1e4 ? fmt::format("{:.3g}", factor) : fmt::format("{:.1e}", factor);
}

std::string size_words(double error, double tolerance) {
  if (!std::isfinite(error)) return "";
  if (tolerance > 0)
    return fmt::format(" (relative difference {:.1e}, {} × what rounding explains)", error, times(error / tolerance));
  return fmt::format(" (relative difference {:.1e})", error);
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kMostNames) text += fmt::format(" and {} more", names.size() - kMostNames);
  return text;
}

Finding note(const std::string& message, Verdict verdict = Verdict::unsupported) {
  Finding finding{.severity = Severity::note, .inspector = "compare", .verdict = verdict};
  finding.message = message;
  return finding;
}

}  // namespace

std::string value_words(const PieceKey& key) {
  std::string text = fmt::format("the {}", name_of(key.kind));
  if (key.kind != PieceKind::loss) text += " of " + (key.name.empty() ? "the model" : key.name);
  if (key.call > 0) text += fmt::format(", call {}", key.call + 1);
  return text;
}

std::string words_of(const PieceKey& key) { return fmt::format("step {}: {}", key.step, value_words(key)); }

void add_value(std::vector<std::string>& values, const PieceKey& key) {
  const std::string words = value_words(key);
  if (std::ranges::find(values, words) == values.end()) values.push_back(words);
}

Finding finding_of(const Wrong& wrong, const Cause& cause) {
  RankSet ranks;
  double error = 0;
  for (const JudgedValue* each : wrong.differing) {
    ranks = ranks | each->ranks;
    error = std::max(error, each->fits ? each->error : INFINITY);
  }
  const JudgedValue& first = *wrong.differing.front();
  Finding finding = fault_of(wrong.key, ranks);
  finding.tensors.push_back(tensor_of(wrong.key, *first.piece));
  RankSet all;
  for (const RankSet& each : wrong.layout.groups) all = all | each;
  std::string where;
  if (all.size() > 1) where = first.is_sum || first.piece->flags & Piece::partial ? ", over " : " on ";
  if (!where.empty()) where += ranks.words();
  if (wrong.differing.size() == 1 && wrong.layout.micro_batches > 1 && !first.is_sum &&
      (wrong.key.kind == PieceKind::forward || wrong.key.kind == PieceKind::backward))
    where += fmt::format(" in micro-batch {}", first.micro_batch);
  finding.message = fmt::format("{}{} is not the reference's", words_of(wrong.key), where);
  if (cause.factor)
    finding.message += fmt::format(": it is {:.4g} × the reference's, and otherwise the same", *cause.factor);
  else
    finding.message += size_words(error, wrong.tolerance);
  if (!cause.words.empty()) finding.message += ": " + cause.words;
  if (cause.is_meant) finding.kind = FindingKind::setting;
  return finding;
}

Finding finding_of_pair(const PieceKey& key, const Piece& piece, const RankSet& ranks, double error, double tolerance) {
  Finding finding = fault_of(key, ranks);
  finding.tensors.push_back(tensor_of(key, piece));
  finding.message = fmt::format("{} on {} differs{}", words_of(key), ranks.words(), size_words(error, tolerance));
  if (!std::isfinite(error)) finding.message += ": its shape, its dtype, or what of it is NaN or Inf";
  return finding;
}

Finding finding_of_absent(const PieceKey& key, const RankSet& ranks) {
  Finding finding = fault_of(key, ranks);
  finding.verdict = Verdict::missing;
  finding.message = fmt::format("{} is None on {} when the optimizer reads it, and the reference has one",
                                words_of(key), ranks.words());
  return finding;
}

Finding finding_of_extra(const PieceKey& key, const RankSet& absent, const std::vector<RankPiece>& pieces) {
  RankSet ranks;
  for (const RankPiece& each : pieces) ranks.insert(each.rank);
  Finding finding = fault_of(key, ranks - absent);
  finding.message =
      fmt::format("{} is None in the reference, and {} have one", words_of(key), (ranks - absent).words());
  return finding;
}

double error_between(const Piece& a, const Piece& b) {
  if (a.flags != b.flags || a.element != b.element || a.box != b.box || a.summary.not_finite != b.summary.not_finite)
    return INFINITY;
  const double size = norm(a.summary.sums), apart = norm(difference(b.summary.sums, 1, a.summary.sums));
  if (apart == 0) return 0;
  return size > 0 && std::isfinite(apart) ? apart / size : INFINITY;
}

void add_notes(const Run& reference, const Run& candidate, Comparison& comparison) {
  auto& findings = comparison.findings;
  const auto steps = fmt::format("{} step{}", comparison.steps, comparison.steps == 1 ? "" : "s");
  const bool same = findings.empty();
  if (same && comparison.compared == 0)
    findings.push_back(note("nothing could be compared"));
  else if (same)
    findings.push_back(
        note(fmt::format("same training{}: {} values of {} compared, the largest difference is {:.2g} × what "
                         "rounding explains",
                         comparison.not_recorded.empty() ? "" : ", as far as both runs were recorded",
                         comparison.compared, steps, comparison.largest),
             Verdict::ok));
  else if (comparison.differing > 1 && findings.front().kind != FindingKind::input)
    findings.push_back(
        note(fmt::format("{} of the {} values that were compared in {} differ; those after the first may "
                         "follow from it",
                         comparison.differing, comparison.compared, steps)));
  if (!comparison.not_recorded.empty())
    findings.push_back(
        note("not compared, because the candidate has no recording of it: " + listed(comparison.not_recorded)));
  if (!comparison.says_nothing.empty())
    findings.push_back(note("these say nothing, since rounding alone changes them by more than they are: " +
                            listed(comparison.says_nothing)));
  for (const Run* run : {&reference, &candidate}) {
    std::map<std::string, RankSet> notes;
    for (const Recording& each : run->ranks) {
      for (const std::string& text : each.notes) notes[text].insert(each.about.rank);
      if (each.steps < each.about.steps)
        notes[fmt::format("it has ended after {} of {} steps", each.steps, each.about.steps)].insert(each.about.rank);
    }
    for (const auto& [text, ranks] : notes)
      findings.push_back(note(fmt::format("{}{}: {}", run == &reference ? "the reference" : "the candidate",
                                          run->ranks.size() > 1 ? ", " + ranks.words() : "", text)));
  }
}

}  // namespace lockstep::inspect::compare
