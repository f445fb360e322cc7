// Which rank has a gradient, of which parameters, and whether it is finite.
#include <fmt/format.h>

#include <algorithm>

#include "inspectors/findings/text.h"
#include "inspectors/grads/findings.h"
#include "inspectors/grads/gathered_parameters.h"

namespace lockstep::inspect {

bool GradsFindings::none_at_all(bool before) {
  for (size_t r = 0; r < ranks_.size(); ++r)
    for (size_t p = 0; p < parameters_.size(); ++p)
      if (of(r, p, before).present) return false;
  Finding found = finding(Severity::note, "missing", "gradient", ranks_);
  found.message = parameters_.empty()
                      ? "has no parameter"
                      : fmt::format("no gradient on {}: look between backward and zero_grad", ranks_.words());
  if (const std::string older = older_objects(); !older.empty()) found.message += "; " + older;
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
      remark_ += fmt::format("; {} left {} out", ranks.words(), how_many(parameters.size(), "parameter"));
      continue;
    }
    // Under no_sync, and before a reduction by hand, a rank may still get it.
    const bool proven =
        options_.local() ? wrapper_.there || subject_.averages_in_a_loop : !(wrapper_.last_was_local && !stepped());
    Finding found = finding(proven ? Severity::fault : Severity::note, "missing", "gradient", ranks);
    for (const size_t p : parameters) found.tensors.push_back(tensor(p));
    found.message =
        fmt::format("{} {} no gradient for {}, which {} {}", ranks.words(), ranks.size() == 1 ? "has" : "have",
                    parameters.size() == 1 ? found.tensors[0].name : how_many(parameters.size(), "parameter"),
                    (ranks_ - ranks).words(), (ranks_ - ranks).size() == 1 ? "has" : "have");
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
  const std::string older = subject_.type == "optimizer" ? older_objects() : std::string();
  found.message = fmt::format("no rank has a gradient for {}{}",
                              unused.size() == 1 ? found.tensors[0].name : how_many(unused.size(), "parameter"),
                              older.empty() ? ". Unused in forward?" : ": " + older);
  findings_.push_back(std::move(found));
}

bool GradsFindings::zero_everywhere(bool before) {
  std::vector<size_t> zero, never;  // never: on no rank in what backward left
  size_t present = 0;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    bool all = true, own = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      all = all && of(r, p, before).zero();
      own = own || (compares_before() && of(r, p, true).present && !of(r, p, true).zero());
    }
    present += of(0, p, before).present;
    if (!all) continue;
    zero.push_back(p);
    if (!own) never.push_back(p);
  }
  const bool whole = !zero.empty() && zero.size() == present, cleared = never.size() < zero.size();
  // A gradient that the reduction made zero is reported as a factor of the mean.
  if (!whole && !stepped()) zero = never;
  if (zero.empty()) return false;
  if (wrapper_.skips_unused && !whole) {
    remark_ += fmt::format("; {} exactly zero on every rank", in_how_many(zero.size()));
    return false;
  }
  Finding found = finding(Severity::note, whole && cleared ? "missing" : "unused", "gradient", ranks_);
  for (const size_t p : zero) found.tensors.push_back(tensor(p));
  if (whole)
    found.message = fmt::format("every gradient is exactly zero on {}: {}", ranks_.words(),
                                cleared ? "cleared since backward; look between backward and zero_grad"
                                        : "cleared already, or the loss depends on no parameter");
  else
    found.message = fmt::format(
        "the {} of {} {} exactly zero on {}: cut off from the loss (detached, times zero, a dead activation)?",
        zero.size() == 1 ? "gradient" : "gradients", names_of(zero), zero.size() == 1 ? "is" : "are", ranks_.words());
  findings_.push_back(std::move(found));
  return whole;
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
                      options_.local() && !changed() ? fmt::format("that backward left on {}", ranks.words())
                      : known ? fmt::format("since backward on {}, before anything was reduced", ranks.words())
                              : fmt::format("on {}; which rank brought it in is known where inspect::watch_grads is on",
                                            ranks.words())));
    }
    for (const auto& [list, parameters] : overflown.by_ranks) {
      const RankSet ranks(list);
      tell(ranks, parameters,
           fmt::format(
               "{} in {} on {}, although every rank's own was finite after backward: it came later, with the reduction "
               "(an overflow of the sum?), before it or after it",
               what, in_how_many(parameters.size()), ranks.words()));
    }
  }
}

}  // namespace lockstep::inspect
