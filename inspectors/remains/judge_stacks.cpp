// What the stacks of a running job say of a hang: in which calls its ranks wait, and what the other ranks do.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "inspectors/findings/majority.h"
#include "inspectors/hang/words.h"
#include "inspectors/remains/call_words.h"
#include "inspectors/remains/judges.h"

namespace lockstep::inspect::judging {
namespace {

constexpr size_t kMostTexts = 8;  // in one sentence

/// Returns the line of the program that the main thread of a rank is in.
std::string place_of(const Case& job, int rank) {
  for (const RankStack& each : job.remains.stacks)
    if (each.rank == rank && each.is_main && !each.frames.empty()) return place(each.frames);
  return {};
}

/// Says what ranks do, equal words once: "rank 3 waits for a lock (train.py:9), ranks 4-5 sleep".
std::string what_they_do(const Case& job, const RankSet& ranks) {
  std::vector<std::pair<std::string, RankSet>> texts;
  for (const RankDoing& each : job.remains.doing) {
    if (!ranks.contains(each.rank)) continue;
    std::string text = each.words + (each.ended ? std::string() : in_brackets(place_of(job, each.rank)));
    const auto known = std::ranges::find(texts, text, &std::pair<std::string, RankSet>::first);
    if (known == texts.end())
      texts.emplace_back(std::move(text), RankSet{each.rank});
    else
      known->second.insert(each.rank);
  }
  std::string words;
  for (size_t i = 0; i < std::min(texts.size(), kMostTexts); ++i) {
    const auto& [text, of_text] = texts[i];
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", of_text.words(), said_of(text, of_text.size()));
  }
  if (texts.size() > kMostTexts) words += fmt::format(", and {} more", texts.size() - kMostTexts);
  return words;
}

/// A call of torch.distributed that ranks wait in.
struct Site {
  std::string op, where;
  RankSet ranks;
};

std::vector<Site> sites_of(const Case& job) {
  std::vector<Site> sites;
  for (const RankDoing& each : job.remains.doing) {
    if (each.op.empty() || each.ended) continue;
    const std::string where = place_of(job, each.rank);
    const auto known =
        std::ranges::find_if(sites, [&](const Site& site) { return site.op == each.op && site.where == where; });
    if (known == sites.end())
      sites.push_back({each.op, where, RankSet{each.rank}});
    else
      known->ranks.insert(each.rank);
  }
  std::ranges::stable_sort(sites, [](const Site& a, const Site& b) { return a.ranks.size() > b.ranks.size(); });
  return sites;
}

std::string waits_in(const std::vector<Site>& sites) {
  std::string words;
  for (size_t i = 0; i < std::min(sites.size(), kMostTexts); ++i) {
    const Site& site = sites[i];
    words += fmt::format("{}{} {} in {}{}", words.empty() ? "" : ", ", site.ranks.words(),
                         site.ranks.size() == 1 ? "waits" : "wait", site.op, in_brackets(site.where));
  }
  if (sites.size() > kMostTexts) words += fmt::format(", and {} more calls", sites.size() - kMostTexts);
  return words;
}

/// Returns the ranks that are looked at and in no call of torch.distributed, and the kind of what the first of them does:
/// one that is gone or stopped comes first, since it will not come.
std::pair<RankSet, FindingKind> others_than(const Case& job, const RankSet& waiting) {
  RankSet others;
  FindingKind kind = FindingKind::unknown;
  bool will_not_come = false;
  for (const RankDoing& each : job.remains.doing) {
    if (waiting.contains(each.rank)) continue;
    const bool first = others.empty();
    others.insert(each.rank);
    const bool lost = each.ended || each.kind == FindingKind::stopped;
    if (first || (lost && !will_not_come)) kind = each.kind;
    will_not_come = will_not_come || lost;
  }
  return {others, kind};
}

}  // namespace

void judge_stacks(const Case& job, Verdicts& verdicts) {
  if (!job.remains.look) return;
  if (const RankSet& elsewhere = job.remains.look->elsewhere; !elsewhere.empty()) {
    Finding note = about().finding(Severity::note, Verdict::missing);
    note.ranks = elsewhere;
    note.message =
        fmt::format("{} {} on other machines, or {} not started by this job's launcher here: not looked at",
                    elsewhere.words(), elsewhere.size() == 1 ? "is" : "are", elsewhere.size() == 1 ? "was" : "were");
    verdicts.add(Weight::remark, std::move(note));
  }
  if (!job.dumped.empty()) return;
  const std::vector<Site> sites = sites_of(job);
  RankSet waiting, moved;
  std::map<std::string, RankSet> by_op;
  for (const Site& site : sites) {
    waiting = waiting | site.ranks;
    by_op[site.op] = by_op[site.op] | site.ranks;
  }
  for (const RankDoing& each : job.remains.doing)
    if (each.has_moved && waiting.contains(each.rank)) moved.insert(each.rank);
  if (sites.empty() || !moved.empty()) return;  // they go from one collective to the next
  const auto [others, kind] = others_than(job, waiting);
  const Site& first = sites.front();
  Finding finding = about().finding(Severity::fault, Verdict::hang, kind);
  if (!first.where.empty()) finding.where = first.where;
  finding.message = waits_in(sites);
  if (!others.empty()) {
    finding.ranks = others;
    finding.reference_ranks = waiting;
    finding.message += fmt::format("; {}", what_they_do(job, others));
  } else if (by_op.size() > 1) {
    const Majority majority = majority_of(waiting, by_op);
    finding.kind = FindingKind::other_collective;
    finding.ranks = majority.at_fault;
    finding.reference_ranks = majority.reference;
    finding.message += fmt::format(": if these are calls of one group, none of them can continue. {}", kOneOrder);
  } else {
    finding.kind = FindingKind::communicator;
    finding.ranks = waiting;
    finding.message += job.remains.look->elsewhere.empty()
                           ? ": the network, or a difference that stacks do not show (shape, dtype, group), keeps them"
                           : ": a rank on another machine may not have called it";
  }
  finding.message += "; by stacks, which do not tell the numbers and groups of collectives";
  verdicts.add(Weight::stuck, std::move(finding));
}

Finding what_ranks_do(const Case& job) {
  Finding finding = about().finding(Severity::note, Verdict::unsupported);
  RankSet ranks;
  for (const RankDoing& each : job.remains.doing) ranks.insert(each.rank);
  finding.ranks = ranks;
  finding.message = fmt::format("no hang is proven by this: {}", what_they_do(job, ranks));
  return finding;
}

}  // namespace lockstep::inspect::judging
