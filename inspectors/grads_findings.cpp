#include "inspectors/grads_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "dist/collective_op.h"
#include "inspectors/text.h"
#include "inspectors/verify_findings.h"

namespace lockstep::inspect {
namespace {

// Norms whose share of the whole gradient is below this are rounding noise: a bias in front of a batch norm, say.
constexpr double kNegligible = 1e-5;
// Deviation of logarithms that batches of their own are given in any case.
constexpr double kLeastDeviation = 0.25;
// Steps after which a gradient that never changes is worth a word although all ranks agree.
constexpr int64_t kNeverChanges = 10;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double length(const Sketch& sketch) {
  double squares = 0;
  for (const double each : sketch) squares += each * each;
  return std::sqrt(squares);
}

/// How unlike the others each norm is (see GradsOptions::threshold); 0 where there is nothing to say.
std::vector<double> unlikeness(const std::vector<double>& norms) {
  std::vector<double> scores(norms.size(), 0);
  const auto ratio = [](double a, double b) {
    if (a == b) return 1.0;
    return std::min(a, b) > 0 ? std::max(a / b, b / a) : INFINITY;
  };
  if (norms.size() < 4) {
    for (size_t i = 0; i < norms.size(); ++i)
      scores[i] = ratio(norms[i], norms.size() == 2 ? norms[1 - i] : median(norms));
    return scores;
  }
  std::vector<double> logarithms;
  for (const double each : norms) logarithms.push_back(std::log(std::max(each, 1e-300)));
  const double middle = median(logarithms);
  std::vector<double> deviations;
  for (const double each : logarithms) deviations.push_back(std::abs(each - middle));
  const double deviation = std::max(1.4826 * median(deviations), kLeastDeviation);
  for (size_t i = 0; i < norms.size(); ++i) scores[i] = deviations[i] / deviation;
  return scores;
}

/// 1, or the factor by which `after` is `before` in every element; 0 where it is no multiple of it.
double factor_of(const ItemDifference& item, size_t place, size_t source) {
  const Difference& difference = item.difference[place];
  if (!item.complete || item.norm[source] == 0 || item.not_finite[place] + item.not_finite[source] > 0) return 0;
  const double factor = item.norm[place] / item.norm[source];
  const double wanted = std::abs(factor - 1) * item.norm[source];
  const bool parallel = std::abs(std::sqrt(difference.squares) - wanted) <= 1e-3 * wanted;
  return parallel ? factor : 0;
}

bool near(double value, double wanted, double tolerance) { return std::abs(value / wanted - 1) <= tolerance; }

}  // namespace

/// Parameters that are told of together: because the same ranks are at fault.
struct GradsFindings::Gathered {
  std::map<std::vector<int>, std::vector<size_t>> by_ranks;
  void add(const RankSet& ranks, size_t parameter) { by_ranks[ranks.ranks()].push_back(parameter); }
};

GradsFindings::GradsFindings(const GradientSubject& subject, const GradsOptions& options, RankSet ranks,
                             const WrapperFacts& wrapper, std::vector<GradientOwner> parameters,
                             std::vector<RankFacts> facts)
    : subject_(subject),
      options_(options),
      ranks_(std::move(ranks)),
      wrapper_(wrapper),
      parameters_(std::move(parameters)),
      facts_(std::move(facts)),
      object_(subject.name.empty() ? subject.type : subject.name) {}

const GradFacts& GradsFindings::of(size_t rank, size_t parameter, bool before) const {
  const ParameterFacts& facts = facts_[rank].parameters[parameter];
  return before ? facts.before : facts.now;
}

bool GradsFindings::all_watched() const {
  return !facts_.empty() &&
         std::all_of(facts_.begin(), facts_.end(), [](const RankFacts& each) { return each.watched; });
}

bool GradsFindings::compares_before() const {
  return all_watched() &&
         std::any_of(facts_.begin(), facts_.end(), [](const RankFacts& each) { return each.steps > 0; });
}

bool GradsFindings::stepped() const {
  for (const RankFacts& rank : facts_)
    for (const ParameterFacts& each : rank.parameters)
      if (each.stepped) return true;
  return false;
}

Finding GradsFindings::finding(Severity severity, const char* verdict, const char* kind, const RankSet& ranks) const {
  Finding found;
  found.severity = severity;
  found.inspector = "grads";
  found.verdict = verdict;
  found.object = object_;
  found.kind = kind;
  found.ranks = ranks;
  if (!(ranks == ranks_)) found.reference_ranks = ranks_ - ranks;
  found.step = subject_.wrapper ? std::optional(subject_.wrapper->steps()) : options_.step();
  return found;
}

FindingTensor GradsFindings::tensor(size_t parameter) const {
  const GradientOwner& owner = parameters_[parameter];
  return {.name = owner.name.empty() ? object_ : owner.name,
          .dtype = dist::dtype_name(static_cast<uint8_t>(owner.parameter.scalar_type())),
          .shape = owner.parameter.sizes().vec()};
}

RankSet GradsFindings::ranks_where(const std::vector<bool>& places) const {
  RankSet result;
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i]) result.insert(ranks_.ranks()[i]);
  return result;
}

std::string GradsFindings::how_many(size_t count, const char* what) const {
  const auto total = static_cast<size_t>(std::count_if(
      parameters_.begin(), parameters_.end(), [](const auto& each) { return each.parameter.requires_grad(); }));
  if (total == 1) return fmt::format("its {}", what);
  return count == total ? fmt::format("all {} {}s", total, what) : fmt::format("{} of {} {}s", count, total, what);
}

std::string GradsFindings::in_how_many(size_t count) const { return how_many(count, "gradient"); }

void GradsFindings::add(std::vector<Finding> findings) {
  for (Finding& each : findings) {
    each.inspector = "grads";
    each.object = object_;
    each.step = subject_.wrapper ? std::optional(subject_.wrapper->steps()) : options_.step();
    findings_.push_back(std::move(each));
  }
}

double GradsFindings::total_norm(size_t rank, bool before) const {
  double squares = 0;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const GradFacts& facts = of(rank, p, before);
    if (facts.present) squares += facts.mark.norm * facts.mark.norm;
  }
  return std::sqrt(squares);
}

// ---- after the reduction ---------------------------------------------------------------------------------------------

void GradsFindings::reduced() {
  scope();
  if (none_at_all(false)) return;
  presence(false);
  not_finite(false);
  scale();
  stale();
}

bool GradsFindings::none_at_all(bool before) {
  for (size_t r = 0; r < ranks_.size(); ++r)
    for (size_t p = 0; p < parameters_.size(); ++p)
      if (of(r, p, before).present) return false;
  Finding found = finding(Severity::note, "missing", "gradient", ranks_);
  found.message = parameters_.empty()
                      ? "has no parameter"
                      : fmt::format("no gradient on {}: look between backward and zero_grad", ranks_text(ranks_));
  findings_.push_back(std::move(found));
  return true;
}

void GradsFindings::presence(bool before) {
  Gathered absent_on;
  std::vector<size_t> unused;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (!parameters_[p].parameter.requires_grad()) continue;
    std::vector<bool> absent;
    for (size_t r = 0; r < ranks_.size(); ++r) absent.push_back(!of(r, p, before).present);
    const RankSet ranks = ranks_where(absent);
    if (ranks == ranks_)
      unused.push_back(p);
    else if (!ranks.empty())
      absent_on.add(ranks, p);
  }
  for (const auto& [list, parameters] : absent_on.by_ranks) {
    const RankSet ranks(list);
    if (options_.local() && wrapper_.skips_unused) {  // as it is meant to be
      remark_ += fmt::format("; {} left {} out", ranks_text(ranks), how_many(parameters.size(), "parameter"));
      continue;
    }
    // Under no_sync, and before a reduction by hand, a rank may still get it.
    const bool proven =
        options_.local() ? wrapper_.there || subject_.averages_in_a_loop : !(wrapper_.last_was_local && !stepped());
    Finding found = finding(proven ? Severity::fault : Severity::note, "missing", "gradient", ranks);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    found.message =
        fmt::format("{} {} no gradient for {}, which {} {}", ranks_text(ranks), ranks.size() == 1 ? "has" : "have",
                    parameters.size() == 1 ? found.tensors[0].name : how_many(parameters.size(), "parameter"),
                    ranks_text(ranks_ - ranks), (ranks_ - ranks).size() == 1 ? "has" : "have");
    if (options_.local() && wrapper_.there)
      found.message += ": the reduction of its bucket does not end. Say find_unused_parameters(true)";
    else if (options_.local() && subject_.averages_in_a_loop)
      found.message += ": sync_gradients() passes it over there, and the ranks' all_reduce calls part";
    findings_.push_back(std::move(found));
  }
  if (unused.empty()) return;
  if (wrapper_.skips_unused) {
    remark_ += fmt::format("; {} unused on every rank", how_many(unused.size(), "parameter"));
    return;
  }
  Finding found = finding(Severity::note, "unused", "gradient", ranks_);
  for (const size_t p : unused) found.tensors.push_back(tensor(p));
  found.message =
      fmt::format("no rank has a gradient for {}. Unused in forward?",
                  unused.size() == 1 ? found.tensors[0].name : how_many(unused.size(), "parameter"));
  findings_.push_back(std::move(found));
}

void GradsFindings::not_finite(bool before) {
  for (const bool nan : {true, false}) {
    const auto bad = [&](const GradFacts& facts) {
      return facts.present && (nan ? facts.mark.nan_count > 0 : facts.mark.inf_count > 0 && facts.mark.nan_count == 0);
    };
    Gathered gathered, overflown;
    for (size_t p = 0; p < parameters_.size(); ++p) {
      std::vector<bool> here, origin;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        here.push_back(bad(of(r, p, before)));
        origin.push_back(!options_.local() && compares_before() && here.back() &&
                         (bad(of(r, p, true)) || (of(r, p, true).mark.nan_count + of(r, p, true).mark.inf_count > 0)));
      }
      const RankSet ranks = ranks_where(here), from = ranks_where(origin);
      if (ranks.empty()) continue;
      if (!options_.local() && compares_before() && from.empty())
        overflown.add(ranks, p);
      else
        gathered.add(from.empty() ? ranks : from, p);
    }
    const char* what = nan ? "NaN" : "Inf";
    const auto tell = [&](const RankSet& ranks, const std::vector<size_t>& parameters, const std::string& text) {
      Finding found = finding(Severity::fault, nan ? "nan" : "inf", "gradient", ranks);
      for (const size_t p : parameters) {
        FindingTensor each = tensor(p);
        int64_t count = 0;
        for (size_t r = 0; r < ranks_.size(); ++r) {
          if (!ranks.contains(ranks_.ranks()[r])) continue;
          const GradFacts& facts = of(r, p, before || (compares_before() && of(r, p, true).present));
          count = std::max({count, nan ? facts.mark.nan_count : facts.mark.inf_count});
        }
        if (count > 0) each.count = count;
        found.tensors.push_back(std::move(each));
      }
      found.message = text;
      findings_.push_back(std::move(found));
    };
    for (const auto& [list, parameters] : gathered.by_ranks) {
      const RankSet ranks(list);
      const bool known = compares_before();
      tell(
          ranks, parameters,
          fmt::format("{} in {} {}", what, in_how_many(parameters.size()),
                      options_.local() ? fmt::format("that backward left on {}", ranks_text(ranks))
                      : known ? fmt::format("since backward on {}, before anything was reduced", ranks_text(ranks))
                              : fmt::format("on {}; which rank brought it in is known where inspect::watch_grads is on",
                                            ranks_text(ranks))));
    }
    for (const auto& [list, parameters] : overflown.by_ranks) {
      const RankSet ranks(list);
      tell(ranks, parameters,
           fmt::format(
               "{} in {} on {}, although every rank's own was finite: it came with the reduction (an overflow of "
               "the sum?) or after it",
               what, in_how_many(parameters.size()), ranks_text(ranks)));
    }
  }
}

void GradsFindings::scale() {
  if (wrapper_.last_was_local || wrapper_.uneven || ranks_.size() < 2) return;
  if (!compares_before()) {
    remark_ += "; that they are the mean of the ranks' own is checked where inspect::watch_grads is on before backward";
    return;
  }
  const auto n = static_cast<double>(ranks_.size());
  std::vector<size_t> summed, averaged_twice;
  size_t judged = 0, averaged = 0;
  double factors = 0;
  bool mean = true;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const GradFacts& now = of(0, p, false);
    bool comparable = now.present && now.mark.nan_count + now.mark.inf_count == 0;
    Sketch expected{};
    double magnitude = 0;
    for (size_t r = 0; r < ranks_.size() && comparable; ++r) {
      const GradFacts& before = of(r, p, true);
      comparable = of(r, p, false).present && of(r, p, false).mark.hash == now.mark.hash &&
                   before.mark.nan_count + before.mark.inf_count == 0;
      if (!before.present) continue;  // left out by this rank: it brought zeros
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += before.sketch[i] / n;
      magnitude += length(before.sketch) / n;
    }
    const double expected_length = length(expected), now_length = length(now.sketch);
    // Where the ranks' own all but cancel one another, the sum is rounding.
    if (!comparable || now_length == 0 || expected_length == 0 || expected_length < 1e-3 * magnitude) continue;
    double along = 0, apart = 0;
    for (size_t i = 0; i < expected.size(); ++i) along += now.sketch[i] * expected[i];
    const double factor = along / (expected_length * expected_length);
    for (size_t i = 0; i < expected.size(); ++i) apart += std::pow(now.sketch[i] - factor * expected[i], 2);
    const double residual = std::sqrt(apart) / now_length;
    if (residual > 0.02) {  // compressed beyond recognition, clipped element by element, changed by a hook
      mean = false;
      continue;
    }
    // As exact as rounding lets it be: a gradient that was clipped to nearly that size is no fault.
    const double tolerance = 2e-6 + 2 * residual;
    ++judged;
    factors += factor;
    if (near(factor, 1, std::max(tolerance, 1e-4)))
      ++averaged;
    else
      mean = false;
    if (near(factor, n, tolerance)) summed.push_back(p);
    if (near(factor, 1 / n, tolerance)) averaged_twice.push_back(p);
  }
  const auto tell = [&](const std::vector<size_t>& parameters, Severity severity, const std::string& text) {
    Finding found = finding(severity, "mismatch", "reduction", ranks_);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    found.message =
        fmt::format("{} {} {}", in_how_many(parameters.size()), parameters.size() == 1 ? "is" : "are", text);
    findings_.push_back(std::move(found));
  };
  // A wrapper promises the mean. In a loop by hand a sum of all gradients is right where the loss is divided by the batch of all
  // ranks, and no gradient shows by what it was divided: it is told, and not judged.
  const bool promised = wrapper_.there || subject_.averages_in_a_loop;
  if (!summed.empty() && (promised || averaged > 0))
    tell(summed, promised ? Severity::fault : Severity::note,
         fmt::format("exactly {} times the mean of the ranks' own: summed and not averaged{}", ranks_.size(),
                     promised ? "" : fmt::format(", while {} the mean", averaged == 1 ? "another one is" : "others are")));
  else if (!summed.empty())
    remark_ += fmt::format(
        "; {}exactly {} times the mean of the ranks' own: their sum, which is right where the loss is divided by the "
        "batch of all ranks",
        summed.size() == judged ? "" : in_how_many(summed.size()) + " ", ranks_.size());
  if (!averaged_twice.empty())
    tell(averaged_twice, Severity::fault,
         fmt::format("exactly 1/{} of the mean of the ranks' own: averaged twice", ranks_.size()));
  if (!summed.empty() || !averaged_twice.empty() || judged == 0) return;
  if (mean)
    remark_ += "; the mean of the ranks' own";
  else
    remark_ += fmt::format("; {:.3g} times the mean of the ranks' own (clipped or scaled)",
                           factors / static_cast<double>(judged));
}

void GradsFindings::scope() {
  if (!wrapper_.there || !compares_before() || wrapper_.last_was_local) return;
  std::vector<bool> unwanted;
  for (const RankFacts& each : facts_) unwanted.push_back(each.watched && each.steps > 0 && !each.sync_wanted);
  const RankSet ranks = ranks_where(unwanted);
  if (ranks.empty()) return;
  Finding found = finding(Severity::fault, "mismatch", "reduction", ranks);
  found.message = fmt::format(
      "reduced although the last backward ran within no_sync() on {}: what counts is where forward runs, so it belongs "
      "within the scope, too",
      ranks_text(ranks));
  findings_.push_back(std::move(found));
}

void GradsFindings::stale() {
  if (!compares_before()) return;
  const auto changes = [&](const ParameterFacts& each) {
    return each.before.present && !each.before.zero() && each.same_for == 0;
  };
  // Of whole ranks.
  std::vector<bool> stale_ranks, late;
  int64_t most_steps = 0, for_steps = 0;
  for (const RankFacts& rank : facts_) most_steps = std::max(most_steps, rank.steps);
  for (const RankFacts& rank : facts_) {
    int64_t least = 0;
    bool any = false, all = true;
    for (const ParameterFacts& each : rank.parameters) {
      if (!each.before.present || each.before.zero()) continue;
      least = any ? std::min(least, each.same_for) : each.same_for;
      any = true;
      if (changes(each)) all = false;
    }
    stale_ranks.push_back(any && all);
    if (any && all) for_steps = std::max(for_steps, least);
    late.push_back(!wrapper_.there && rank.steps < most_steps);
  }
  if (const RankSet ranks = ranks_where(late); !ranks.empty()) {
    Finding found = finding(Severity::note, "stale", "gradient", ranks);
    found.message = fmt::format(
        "{} ran backward in fewer steps than {} since the watch began: what {} to the reduction is "
        "the gradient of an earlier one",
        ranks_text(ranks), ranks_text(ranks_ - ranks), ranks.size() == 1 ? "it brings" : "they bring");
    findings_.push_back(std::move(found));
  }
  const auto times = [](int64_t steps) { return steps > 1 ? fmt::format(" for {} steps now", steps) : std::string(); };
  const RankSet ranks = ranks_where(stale_ranks);
  if (!ranks.empty()) {
    Finding found = finding(Severity::note, "stale", "gradient", ranks);
    for (size_t p = 0; p < parameters_.size(); ++p)
      if (parameters_[p].parameter.requires_grad()) found.tensors.push_back(tensor(p));
    found.message = fmt::format(
        "backward left the very gradients of the step before on {}{}: the same batch again, or a loss that does not "
        "depend on it?",
        ranks_text(ranks), times(for_steps));
    findings_.push_back(std::move(found));
  }
  if (ranks == ranks_) return;
  Gathered gathered;
  int64_t longest = 0;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    std::vector<bool> stale;
    int64_t least = INT64_MAX;
    bool anywhere = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const ParameterFacts& each = facts_[r].parameters[p];
      const bool here = each.before.present && !each.before.zero() && each.same_for > 0;
      anywhere |= here;
      least = std::min(least, here ? each.same_for : 0);
      stale.push_back(here && !ranks.contains(ranks_.ranks()[r]));
    }
    const RankSet where = ranks_where(stale);
    if (!anywhere || where.empty()) continue;
    // All alike: a bias behind a plain sum has the same gradient in each step.
    if (where == ranks_ - ranks && least < kNeverChanges) continue;
    gathered.add(where, p);
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (stale[r]) longest = std::max(longest, facts_[r].parameters[p].same_for);
  }
  for (const auto& [list, parameters] : gathered.by_ranks) {
    const RankSet where(list);
    Finding found = finding(Severity::note, "stale", "gradient", where);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    found.message = fmt::format(
        "{} on {} {} what it was in the step before{}",
        parameters.size() == 1 ? "the gradient of " + found.tensors[0].name : in_how_many(parameters.size()),
        ranks_text(where), parameters.size() == 1 ? "is" : "are", times(longest));
    findings_.push_back(std::move(found));
  }
}

std::string GradsFindings::cause(const Subject& compared, const std::vector<const ItemDifference*>& items) const {
  const auto& list = ranks_.ranks();
  if (compares_before()) {
    std::vector<bool> own(ranks_.size(), true);
    for (const ItemDifference* item : items) {
      const std::string& name = compared.items[item->item].name;
      const auto owner = std::find_if(parameters_.begin(), parameters_.end(),
                                      [&](const GradientOwner& each) { return each.name == name; });
      if (owner == parameters_.end()) continue;  // places of a sparse gradient
      const auto p = static_cast<size_t>(owner - parameters_.begin());
      for (size_t r = 0; r < ranks_.size(); ++r)
        if (!of(r, p, true).present || of(r, p, true).mark.hash != of(r, p, false).mark.hash) own[r] = false;
    }
    const RankSet unreduced = ranks_where(own);
    const std::string scope = wrapper_.last_was_local ? "; the last forward ran under no_sync()" : "";
    if (unreduced == ranks_) return "not reduced: on every rank they are what its own backward left" + scope;
    if (!unreduced.empty()) return "not reduced on " + ranks_text(unreduced) + scope;
  }
  if (wrapper_.last_was_local) return "the last forward ran under no_sync(), so they are not reduced yet";

  double factor = 0;
  bool constant = true;
  size_t compared_with = 0;
  for (const ItemDifference* item : items) {
    if (item->difference.size() != ranks_.size()) return "";
    const auto source = static_cast<size_t>(std::find(list.begin(), list.end(), item->source) - list.begin());
    compared_with = source;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (r == source || !item->faulty.contains(list[r])) continue;
      const double each = factor_of(*item, r, source);
      if (each == 0 || each == 1 || (factor != 0 && !near(each, factor, 1e-3))) constant = false;
      factor = each;
    }
  }
  if (!constant || factor == 0) return "";
  const auto n = static_cast<double>(ranks_.size());
  const std::string whose = ranks_.size() == 2 ? fmt::format("rank {}'s", list[compared_with]) : "the others'";
  if (near(factor, n, 1e-4)) return fmt::format("exactly {} times {}: summed and not averaged?", ranks_.size(), whose);
  if (near(factor, 1 / n, 1e-4))
    return fmt::format("exactly 1/{} of {}: {}", ranks_.size(), whose,
                       ranks_.size() == 2 ? "averaged twice, or the other one not averaged?" : "averaged twice?");
  return fmt::format("{:.4g} times {} in every element: another loss scale, or clipped on some ranks only?", factor,
                     whose);
}

void GradsFindings::differences(const Subject& compared, const std::vector<ItemDifference>& items) {
  VerifyOptions options;
  options.detail_bytes(options_.detail_bytes());
  VerifyFindings told(compared, ranks_, options);
  told.differences(compared, items);
  const bool used = stepped();
  for (Finding& found : told.take({})) {
    if (found.verdict == "ok") continue;
    std::vector<const ItemDifference*> of_finding;
    for (const ItemDifference& each : items) {
      const std::string& name = compared.items[each.item].name;
      if (each.faulty == found.ranks && std::any_of(found.tensors.begin(), found.tensors.end(),
                                                    [&](const FindingTensor& tensor) { return tensor.name == name; }))
        of_finding.push_back(&each);
    }
    if (found.severity == Severity::fault) {
      if (const std::string why = cause(compared, of_finding); !why.empty()) found.message += "; " + why;
      if (wrapper_.last_was_local && !used) found.severity = Severity::note;  // an accumulation that goes on
      if (used) found.message += "; an optimizer has stepped with them";
    }
    std::vector<Finding> one;
    one.push_back(std::move(found));
    add(std::move(one));
  }
}

// ---- before the reduction --------------------------------------------------------------------------------------------

void GradsFindings::local() {
  const bool before = compares_before();
  if (none_at_all(before)) return;
  presence(before);
  not_finite(before);
  bool equal = ranks_.size() > 1;
  for (size_t p = 0; p < parameters_.size() && equal; ++p)
    for (size_t r = 1; r < ranks_.size(); ++r)
      if (of(r, p, before).present != of(0, p, before).present ||
          of(r, p, before).mark.hash != of(0, p, before).mark.hash)
        equal = false;
  if (equal && total_norm(0, before) > 0) {
    if (before || (wrapper_.there && wrapper_.last_was_local)) {
      Finding found = finding(Severity::note, "duplicate_data", "gradient", ranks_);
      found.message =
          fmt::format("not reduced yet, and equal bit by bit on {}: did they read the same batch?", ranks_text(ranks_));
      findings_.push_back(std::move(found));
    } else {
      remark_ += "; equal bit by bit: reduced already, or from the same batch (inspect::watch_grads sees them before)";
    }
    return;
  }
  zeros();
  outliers();
}

void GradsFindings::zeros() {
  const bool before = compares_before();
  std::vector<bool> zero;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    bool any = false, all = true;
    for (size_t p = 0; p < parameters_.size(); ++p) {
      const GradFacts& facts = of(r, p, before);
      any |= facts.present;
      if (facts.present && !facts.zero()) all = false;
    }
    zero.push_back(any && all);
  }
  const RankSet ranks = ranks_where(zero);
  if (ranks.empty() || ranks == ranks_) return;
  Finding found = finding(Severity::note, "outlier", "gradient", ranks);
  found.message =
      fmt::format("every gradient of {} is zero; those of {} are not", ranks_text(ranks), ranks_text(ranks_ - ranks));
  findings_.push_back(std::move(found));
}

void GradsFindings::outliers() {
  const bool before = compares_before();
  std::vector<double> totals;
  for (size_t r = 0; r < ranks_.size(); ++r) totals.push_back(total_norm(r, before));
  // A rank without any gradient, or with zeros alone, was told of.
  std::vector<size_t> places;
  std::vector<double> norms;
  for (size_t r = 0; r < totals.size(); ++r)
    if (totals[r] > 0) places.push_back(r), norms.push_back(totals[r]);
  if (places.size() < 2) return;
  const double whole = median(norms);

  const auto list_norms = [&](const std::vector<double>& values) {
    std::string text;
    for (size_t i = 0; i < values.size() && i < 8; ++i)
      text += fmt::format("{}{:.3g} on rank {}", i ? ", " : "", values[i], ranks_.ranks()[places[i]]);
    return values.size() > 8 ? text + ", …" : text;
  };
  const auto odd_ranks = [&](const std::vector<double>& values) {
    const std::vector<double> scores = unlikeness(values);
    RankSet ranks;
    for (size_t i = 0; i < scores.size(); ++i)
      if (scores[i] >= options_.threshold()) ranks.insert(ranks_.ranks()[places[i]]);
    return ranks;
  };

  const RankSet odd = odd_ranks(norms);
  if (!odd.empty()) {
    // The same factor in every gradient: it is the loss that is scaled, and not the data that is odd.
    std::string scale;
    if (const int rank = odd.ranks().back(); odd.size() == 1 || places.size() == 2) {
      const auto place = static_cast<size_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
      std::vector<double> ratios;
      for (size_t p = 0; p < parameters_.size(); ++p) {
        std::vector<double> others;
        for (const size_t r : places)
          if (r != place && of(r, p, before).present) others.push_back(of(r, p, before).mark.norm);
        const double mine = of(place, p, before).mark.norm, theirs = median(others);
        if (theirs > kNegligible * whole && mine > 0) ratios.push_back(mine / theirs);
      }
      const double middle = median(ratios);
      const bool uniform = ratios.size() > 1 && std::all_of(ratios.begin(), ratios.end(), [&](double each) {
                             return each < 2 * middle && each > middle / 2;
                           });
      if (uniform)
        scale = fmt::format("; all gradients by about the same factor, {:.3g}: another loss scale on rank {}?", middle,
                            rank);
    }
    Finding found = finding(Severity::note, "outlier", "gradient", odd);
    found.message =
        fmt::format("the gradient of {} is unlike the others': norm {}{}", ranks_text(odd), list_norms(norms), scale);
    findings_.push_back(std::move(found));
    return;
  }
  Gathered gathered;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    std::vector<double> values;
    for (const size_t r : places)
      if (of(r, p, before).present) values.push_back(of(r, p, before).mark.norm);
    if (values.size() < places.size() || *std::max_element(values.begin(), values.end()) < kNegligible * whole)
      continue;
    // Ranks whose data does not reach a parameter have zeros there; it is of interest where the gradient is a good part.
    if (*std::min_element(values.begin(), values.end()) == 0 && median(values) < 1e-2 * whole) continue;
    if (const RankSet ranks = odd_ranks(values); !ranks.empty()) gathered.add(ranks, p);
  }
  for (const auto& [list, parameters] : gathered.by_ranks) {
    const RankSet ranks(list);
    Finding found = finding(Severity::note, "outlier", "gradient", ranks);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    std::vector<double> values;
    for (const size_t r : places) values.push_back(of(r, parameters[0], before).mark.norm);
    found.message = fmt::format("{} of {} {} unlike the others': norm {}{}", in_how_many(parameters.size()),
                                ranks_text(ranks), parameters.size() == 1 ? "is" : "are", list_norms(values),
                                parameters.size() == 1 ? "" : " in " + found.tensors[0].name);
    findings_.push_back(std::move(found));
  }
}

// ---- the end ---------------------------------------------------------------------------------------------------------

std::vector<Finding> GradsFindings::take(const Report& report) {
  if (findings_.empty()) {
    const bool before = options_.local() && compares_before();
    Finding found = finding(Severity::note, "ok", "gradient", ranks_);
    std::string norm;
    if (!facts_.empty()) {
      double least = INFINITY, most = 0;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        least = std::min(least, total_norm(r, before));
        most = std::max(most, total_norm(r, before));
      }
      norm = least == most ? fmt::format(", norm {:.4g}", most) : fmt::format(", norms {:.4g} to {:.4g}", least, most);
    }
    found.message = fmt::format(
        "{} on {}: {}, {}{}, {:.1f} ms{}",
        options_.local() ? "gradients not yet reduced are sane" : "gradients are equal and finite", ranks_text(ranks_),
        count_text(report.tensors, "tensor"), bytes_text(report.bytes), norm, report.seconds * 1e3, remark_);
    findings_.push_back(std::move(found));
  }
  return std::move(findings_);
}

}  // namespace lockstep::inspect
