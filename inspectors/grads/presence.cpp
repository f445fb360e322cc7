// Judges which rank has a gradient, of which parameters, and whether it is finite.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/watch/spelling.h"
#include "inspectors/findings/text.h"
#include "inspectors/grads/findings.h"
#include "inspectors/grads/parameters_by_ranks.h"

namespace lockstep::inspect {

bool GradsFindings::none_at_all(bool before) {
  for (size_t r = 0; r < ranks_.size(); ++r)
    for (size_t p = 0; p < parameters_.size(); ++p)
      if (of(r, p, before).present) return false;
  Finding found = finding(Severity::note, Verdict::missing, FindingKind::gradient, ranks_);
  found.message = parameters_.empty()
                      ? "there are no parameters"
                      : fmt::format("no gradients on {}: call grads between backward and zero_grad", ranks_.words());
  if (const std::string older = older_objects(); !older.empty()) found.message += "; " + older;
  findings_.push_back(std::move(found));
  return true;
}

void GradsFindings::presence(bool before) {
  ParametersByRanks absent_on;
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
    if (options_.local() && wrapper_.skips_unused) {  // intended
      remark_ += fmt::format("; {} left {} out", ranks.words(), how_many(parameters.size(), "parameter"));
      continue;
    }
    // Under no_sync, and before a hand-written reduction, a later backward may still make the gradient.
    const bool proven =
        options_.local() ? wrapper_.present || subject_.averages_in_a_loop : !(wrapper_.last_was_local && !stepped());
    Finding found = finding(proven ? Severity::fault : Severity::note, Verdict::missing, FindingKind::gradient, ranks);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    found.message =
        fmt::format("{} {} no gradient for {}, which {} {}", ranks.words(), ranks.size() == 1 ? "has" : "have",
                    parameters.size() == 1 ? found.tensors[0].name : how_many(parameters.size(), "parameter"),
                    (ranks_ - ranks).words(), (ranks_ - ranks).size() == 1 ? "has" : "have");
    if (options_.local() && wrapper_.present)
      found.message += fmt::format(": the reduction of its bucket does not end. Set {}", spelling::kFindUnused.text());
    else if (options_.local() && subject_.averages_in_a_loop)
      found.message += ": sync_gradients() skips it there, so the ranks' all_reduce calls do not match";
    findings_.push_back(std::move(found));
  }
  if (unused.empty()) return;
  if (wrapper_.skips_unused) {
    remark_ += fmt::format("; {} unused on every rank", how_many(unused.size(), "parameter"));
    return;
  }
  Finding found = finding(Severity::note, Verdict::unused, FindingKind::gradient, ranks_);
  for (const size_t p : unused) found.tensors.push_back(tensor(p));
  const std::string older = subject_.type == "optimizer" ? older_objects() : std::string();
  found.message = fmt::format("no rank has a gradient for {}{}",
                              unused.size() == 1 ? found.tensors[0].name : how_many(unused.size(), "parameter"),
                              older.empty() ? ". Unused in forward?" : ": " + older);
  findings_.push_back(std::move(found));
}

bool GradsFindings::zero_everywhere(bool before) {
  std::vector<size_t> zero, never;  // never: zero on every rank after backward, too
  size_t present = 0;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    bool zero_now = true, nonzero_before = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      zero_now = zero_now && of(r, p, before).zero();
      nonzero_before = nonzero_before || (compares_before() && of(r, p, true).present && !of(r, p, true).zero());
    }
    present += of(0, p, before).present;
    if (!zero_now) continue;
    zero.push_back(p);
    if (!nonzero_before) never.push_back(p);
  }
  const bool all = !zero.empty() && zero.size() == present, cleared = never.size() < zero.size();
  // A gradient that the reduction made zero is reported as a factor of the mean.
  if (!all && !stepped()) zero = never;
  if (zero.empty()) return false;
  if (wrapper_.skips_unused && !all) {
    remark_ += fmt::format("; {} exactly zero on every rank", in_how_many(zero.size()));
    return false;
  }
  Finding found =
      finding(Severity::note, all && cleared ? Verdict::missing : Verdict::unused, FindingKind::gradient, ranks_);
  for (const size_t p : zero) found.tensors.push_back(tensor(p));
  if (all)
    found.message = fmt::format("every gradient is exactly zero on {}: {}", ranks_.words(),
                                cleared ? "cleared since backward; call grads between backward and zero_grad"
                                        : "already cleared, or the loss depends on no parameter");
  else
    found.message = fmt::format(
        "the {} of {} {} exactly zero on {}: cut off from the loss (detached, times zero, a dead activation)?",
        zero.size() == 1 ? "gradient" : "gradients", names_of(zero), zero.size() == 1 ? "is" : "are", ranks_.words());
  findings_.push_back(std::move(found));
  return all;
}

void GradsFindings::not_finite(bool before) {
  for (const bool nan : {true, false}) {
    const auto bad = [&](const GradFacts& facts) {
      return facts.present && (nan ? facts.mark.nan_count > 0 : facts.mark.inf_count > 0 && facts.mark.nan_count == 0);
    };
    ParametersByRanks by_origin, made_later;
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
        made_later.add(ranks, p);
      else
        by_origin.add(from.empty() ? ranks : from, p);
    }
    const char* what = nan ? "NaN" : "Inf";
    const auto report = [&](const RankSet& ranks, const std::vector<size_t>& parameters, const std::string& text) {
      Finding found = finding(Severity::fault, nan ? Verdict::nan : Verdict::inf, FindingKind::gradient, ranks);
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
    for (const auto& [list, parameters] : by_origin.by_ranks) {
      const RankSet ranks(list);
      std::string when;
      if (options_.local() && !changed())
        when = fmt::format("after backward on {}", ranks.words());
      else if (compares_before())
        when = fmt::format("after backward on {}, before the reduction", ranks.words());
      else
        when = fmt::format("on {}; {} shows on which rank it began", ranks.words(), inspect_name("watch_grads"));
      report(ranks, parameters, fmt::format("{} in {} {}", what, in_how_many(parameters.size()), when));
    }
    for (const auto& [list, parameters] : made_later.by_ranks) {
      const RankSet ranks(list);
      report(ranks, parameters,
             fmt::format("{} in {} on {}, although the gradients of every rank were finite after backward: made by the "
                         "reduction (an overflow of the sum?), or before or after it",
                         what, in_how_many(parameters.size()), ranks.words()));
    }
  }
}

}  // namespace lockstep::inspect
