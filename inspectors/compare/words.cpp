#include "inspectors/compare/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "protocol/text.h"

namespace lockstep::inspect::compare {
namespace {

constexpr size_t kMostNames = 6, kMostLikewise = 2;

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

/// Returns "2.3e-03", or how else numbers of this size are read best.
std::string times(double factor) {
  return factor < 1e4 ? fmt::format("{:.3g}", factor) : fmt::format("{:.1e}", factor);
}

std::string size_words(double error, double tolerance, const std::string& unit) {
  if (!std::isfinite(error)) return "";
  if (tolerance > 0 && !unit.empty())
    return fmt::format(" (relative difference {:.1e}, {} × {})", error, times(error / tolerance), unit);
  return fmt::format(" (relative difference {:.1e})", error);
}

Finding note(const std::string& message, Verdict verdict = Verdict::unsupported) {
  Finding finding{.severity = Severity::note, .inspector = "compare", .verdict = verdict};
  finding.message = message;
  return finding;
}

/// Returns the names of parameters as the model has them, in order.
std::vector<std::string> parameters_of(const Run& run) {
  std::set<std::string> names;
  for (const Recording& each : run.ranks)
    for (const Piece& piece : each.pieces)
      if (piece.kind == PieceKind::initial) names.insert(each.names[piece.name].name);
  return {names.begin(), names.end()};
}

/// Returns what stands before each name of `longer`, where the rest is that of `names`; nothing where they differ more.
std::string prefix_between(const std::vector<std::string>& names, const std::vector<std::string>& longer) {
  if (names.empty() || names.size() != longer.size() || longer.front().size() <= names.front().size()) return "";
  const std::string prefix = longer.front().substr(0, longer.front().size() - names.front().size());
  const auto is_behind_it = [&](const std::string& a, const std::string& b) { return b == prefix + a; };
  return prefix.ends_with('.') && std::ranges::equal(names, longer, is_behind_it) ? prefix : "";
}

void add_note_of_prefix(const Run& reference, const Run& candidate, std::vector<Finding>& findings) {
  const auto a = parameters_of(reference), b = parameters_of(candidate);
  const std::string of_candidate = prefix_between(a, b), of_reference = prefix_between(b, a);
  const std::string& prefix = of_candidate.empty() ? of_reference : of_candidate;
  if (prefix.empty()) return;
  findings.push_back(note(fmt::format(
      "the names of the {} are those of the {} behind \"{}\": in one of them the model is called, in the other a "
      "module "
      "that has it",
      of_candidate.empty() ? "reference" : "candidate", of_candidate.empty() ? "candidate" : "reference", prefix)));
}

/// Says how the values that were compared are the same.
std::string same_words(const Comparison& comparison) {
  if (comparison.unit.empty()) return "their sketches have the same bits";
  return fmt::format("the largest difference is {:.2g} × {}", comparison.largest, comparison.unit);
}

/// Four digits, and more of a factor that would be written as 1.
std::string factor_words(double factor) {
  std::string words = fmt::format("{:.4g}", factor);
  return words == "1" ? fmt::format("{:.9g}", factor) : words;
}

}  // namespace

std::string value_words(const PieceKey& key) {
  std::string text = fmt::format("the {}", name_of(key.kind));
  if (key.kind != PieceKind::loss) text += " of " + (key.name.empty() ? "the model" : key.name);
  if (key.call > 0) text += fmt::format(", call {}", key.call + 1);
  return text;
}

std::string words_of(const PieceKey& key) { return fmt::format("step {}: {}", key.step, value_words(key)); }

std::string steps_words(int64_t steps) { return fmt::format("{} step{}", steps, steps == 1 ? "" : "s"); }

std::string damage_words(const Recording& recording) {
  return recording.damaged_at ? fmt::format("it is damaged, or cut off, at byte {}", *recording.damaged_at) : "";
}

FindingTensor tensor_of(const PieceKey& key, const Piece& piece) {
  return {.name = key.name, .dtype = name_of(piece.element), .shape = piece.box.size};
}

void add_value(std::vector<std::string>& values, const PieceKey& key, const RankSet& ranks) {
  const std::string words = value_words(key) + (ranks.empty() ? "" : " on " + ranks.words());
  if (std::ranges::find(values, words) == values.end()) values.push_back(words);
}

Finding finding_of(const Wrong& wrong, const Cause& cause, const std::string& unit) {
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
  if (all.size() > 1) {
    const bool is_sum = first.is_sum || (first.piece->flags & Piece::partial) != 0;
    where = is_sum ? fmt::format(", over {},", ranks.words()) : " on " + ranks.words();
  }
  if (wrong.differing.size() == 1 && wrong.layout.micro_batches > 1 && !first.is_sum &&
      (wrong.key.kind == PieceKind::forward || wrong.key.kind == PieceKind::backward))
    where += fmt::format(" in micro-batch {}", first.micro_batch);
  finding.message = fmt::format("{}{} is not the reference's", words_of(wrong.key), where);
  if (cause.factor)
    finding.message += fmt::format(": it is {} × the reference's, and otherwise the same", factor_words(*cause.factor));
  else
    finding.message += size_words(error, wrong.tolerance, unit);
  if (!cause.words.empty()) finding.message += ": " + cause.words;
  if (cause.is_meant) finding.kind = FindingKind::setting;
  return finding;
}

Finding finding_of_pair(const PieceKey& key, const Piece& piece, const RankSet& ranks, double error, double tolerance,
                        const std::string& unit) {
  Finding finding = fault_of(key, ranks);
  finding.tensors.push_back(tensor_of(key, piece));
  finding.message = fmt::format("{} on {} differs{}", words_of(key), ranks.words(), size_words(error, tolerance, unit));
  if (!std::isfinite(error)) finding.message += ": its shape, its dtype, or what of it is NaN or Inf";
  return finding;
}

Finding finding_of_missing(const PieceKey& key, const RankSet& ranks) {
  Finding finding = fault_of(key, ranks);
  finding.verdict = Verdict::missing;
  finding.message =
      fmt::format("{} was not recorded on {}, and the reference has it there", words_of(key), ranks.words());
  return finding;
}

Finding finding_of_absent(const PieceKey& key, const RankSet& ranks) {
  Finding finding = fault_of(key, ranks);
  finding.verdict = Verdict::missing;
  finding.message = fmt::format("{} is None on {} when the optimizer reads it, and the reference has one",
                                words_of(key), ranks.words());
  return finding;
}

Finding finding_of_unread(const PieceKey& key, const RankSet& ranks) {
  Finding finding = fault_of(key, ranks);
  finding.verdict = Verdict::missing;
  finding.message = fmt::format(
      "{} is read by no optimizer{}, and the reference's is: the parameter is frozen, or not one of an optimizer's",
      words_of(key), ranks.size() > 1 ? " on " + ranks.words() : "");
  return finding;
}

Finding finding_of_extra(const PieceKey& key, const RankSet& absent, const std::vector<RankPiece>& pieces) {
  RankSet ranks;
  for (const RankPiece& each : pieces) ranks.insert(each.rank);
  const RankSet with = ranks - absent;
  Finding finding = fault_of(key, with);
  finding.message = fmt::format("{} is None in the reference, and {} {} one", words_of(key), with.words(),
                                with.size() == 1 ? "has" : "have");
  return finding;
}

Finding finding_of_no_difference(int64_t steps) {
  return note(fmt::format(
      "in {} of its run in which each value was replaced by the reference's, nothing differs: the difference "
      "adds up over several values, or is not there in each run",
      steps_words(steps)));
}

Finding finding_of_failed_run(const std::string& why) {
  return note("only the first fault is known, since there is no whole run in which values were replaced: " + why);
}

void add_likewise(const std::map<size_t, std::vector<std::string>>& values, std::vector<Finding>& findings) {
  for (const auto& [index, names] : values)
    findings[index].message += "; likewise " + protocol::listed(names, kMostLikewise);
}

double error_between(const Piece& a, const Piece& b) {
  if (a.flags != b.flags || a.element != b.element || a.box != b.box || a.summary.not_finite != b.summary.not_finite)
    return INFINITY;
  const double size = norm(a.summary.sums), apart = norm(difference(b.summary.sums, 1, a.summary.sums));
  if (apart == 0) return a.checksum == b.checksum ? 0 : resolution_of(a.element);
  return size > 0 && std::isfinite(apart) ? apart / size : INFINITY;
}

void add_notes(const Run& reference, const Run& candidate, Comparison& comparison) {
  auto& findings = comparison.findings;
  const bool has_fault = !findings.empty();
  bool is_damaged = false;
  const auto broke_off = [](const Recording& each) { return each.steps < each.about.steps && !each.is_complete; };
  for (const Run* run : {&reference, &candidate})
    for (const Recording& each : run->ranks) is_damaged = is_damaged || each.damaged_at || broke_off(each);
  comparison.is_same = !has_fault && !comparison.is_replaced && comparison.compared > 0 &&
                       comparison.not_recorded.empty() && comparison.only_in_candidate.empty() &&
                       !comparison.has_silent_loss && !is_damaged;
  const auto steps = steps_words(comparison.steps);
  if (!has_fault && comparison.compared == 0)
    findings.push_back(note("nothing could be compared"));
  else if (!has_fault)
    findings.push_back(note(
        fmt::format("{}: {} values of {} compared, {}",
                    comparison.is_same ? "same training" : "what was recorded by both is the same, and that is not all",
                    comparison.compared, steps, same_words(comparison)),
        comparison.is_same ? Verdict::ok : Verdict::unsupported));
  else if (comparison.is_replaced)
    findings.push_back(note(fmt::format(
        "{} of the {} values that were compared in {} differ. Each was replaced by the reference's once it was "
        "recorded, so that what comes after it does not follow from it. What computes a value in another way has other "
        "gradients, too",
        comparison.differing, comparison.compared, steps)));
  else if (comparison.differing > 1 && findings.front().kind != FindingKind::input)
    findings.push_back(note(
        fmt::format("{} of the {} values that were compared in {} differ; those after the first may follow from it",
                    comparison.differing, comparison.compared, steps)));
  if (!comparison.not_replaced.empty())
    findings.push_back(
        note("these differ and could not be replaced, so that what comes after them may follow from them: " +
             protocol::listed(comparison.not_replaced, kMostNames)));
  if (!comparison.not_recorded.empty())
    findings.push_back(note("not compared, because the candidate has no recording of it: " +
                            protocol::listed(comparison.not_recorded, kMostNames)));
  if (!comparison.only_in_candidate.empty())
    findings.push_back(note("not compared, because the reference has no recording of it: " +
                            protocol::listed(comparison.only_in_candidate, kMostNames)));
  add_note_of_prefix(reference, candidate, findings);
  if (!comparison.says_nothing.empty())
    findings.push_back(note("these say nothing, since rounding alone changes them by more than they are: " +
                            protocol::listed(comparison.says_nothing, kMostNames)));
  if (reference.steps() != candidate.steps())
    findings.push_back(
        note(fmt::format("{} compared: the reference has {}, and the candidate {}",
                         steps + (comparison.steps == 1 ? " is" : " are"), reference.steps(), candidate.steps())));
  for (const Run* run : {&reference, &candidate}) {
    std::map<std::string, RankSet> notes;
    for (const Recording& each : run->ranks) {
      for (const std::string& text : each.notes) notes[text].insert(each.about.rank);
      if (each.damaged_at)
        notes[damage_words(each)].insert(each.about.rank);
      else if (each.steps < each.about.steps)
        notes[fmt::format("it {} after {} of {} steps", broke_off(each) ? "broke off" : "has ended", each.steps,
                          each.about.steps)]
            .insert(each.about.rank);
    }
    for (const auto& [text, ranks] : notes)
      findings.push_back(note(fmt::format("{}{}: {}", run == &reference ? "the reference" : "the candidate",
                                          run->ranks.size() > 1 ? ", " + ranks.words() : "", text)));
  }
}

}  // namespace lockstep::inspect::compare
