#include "inspectors/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "collectives/log/collective_op.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/findings/text.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/subject/difference_findings.h"
#include "protocol/json_fields.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

/// A rank sends these facts about its parts to the others.
struct PartFacts {
  std::vector<Finding> findings;  // of the groups that it is in
  std::vector<FindingTensor> not_finite;  // count: NaN and Inf
  bool nan = false;  // among them
  // Counts parts that other ranks have as well, of one mesh or of several; and that this rank has for itself.
  int64_t compared = 0, between_meshes = 0, alone = 0;
  int64_t elsewhere = 0;  // divided tensors of which this rank has no part
};

LOCKSTEP_JSON(PartFacts, findings, not_finite, nan, compared, between_meshes, alone, elsewhere)

bool is_call(const Finding& finding) { return finding.kind == FindingKind::call; }

/// Finds NaN and Inf in the parts of this rank. Parts that are equal on several ranks have a finding about each.
void look_for_nan(const Subject& subject, PartFacts& facts) {
  std::vector<at::Tensor> tensors;
  std::vector<const Item*> items;
  for (const Item& item : subject.items) {
    if (!item.tensor.defined()) continue;
    tensors.push_back(item.tensor);
    items.push_back(&item);
  }
  const std::vector<Fingerprint> marks = fingerprint(tensors);
  for (size_t i = 0; i < marks.size(); ++i) {
    if (marks[i].nan_count + marks[i].inf_count == 0) continue;
    facts.nan = facts.nan || marks[i].nan_count > 0;
    facts.not_finite.push_back({.name = items[i]->name,
                                .dtype = dist::dtype_name(static_cast<uint8_t>(items[i]->tensor.scalar_type())),
                                .shape = items[i]->tensor.sizes().vec(),
                                .count = marks[i].nan_count + marks[i].inf_count});
  }
}

/// Makes one finding for each list of tensors: ranks with NaN in the same ones share it.
std::vector<Finding> not_finite_findings(const About& about, const std::vector<PartFacts>& facts) {
  std::map<std::vector<std::string>, std::vector<size_t>> by_names;
  for (size_t i = 0; i < facts.size(); ++i) {
    std::vector<std::string> names{facts[i].nan ? "nan" : "inf"};
    for (const FindingTensor& each : facts[i].not_finite) names.push_back(each.name);
    if (names.size() > 1) by_names[names].push_back(i);
  }
  std::vector<Finding> findings;
  for (const auto& [names, indices] : by_names) {
    const PartFacts& first = facts[indices.front()];
    Finding found = about.finding(Severity::fault, first.nan ? Verdict::nan : Verdict::inf, FindingKind::parameter);
    found.ranks = {};
    for (const size_t i : indices) found.ranks.insert(about.rank_at(i));
    found.tensors = first.not_finite;
    found.message = fmt::format("{} in {} on {}", first.nan ? "NaN" : "Inf",
                                counted(static_cast<int64_t>(found.tensors.size()), "tensor"), found.ranks.words());
    findings.push_back(std::move(found));
  }
  return findings;
}

/// Says what the `ok` covers besides what all ranks have alike: the most that a rank has of each.
std::string coverage(const About& about, const std::vector<PartFacts>& facts) {
  const auto most = [&](int64_t PartFacts::* count) { return std::ranges::max(facts, {}, count).*count; };
  std::string text;
  if (const int64_t compared = most(&PartFacts::compared); compared > 0)
    text += fmt::format("; {} equal among the ranks that replicate them", counted(compared, "part"));
  if (const int64_t compared = most(&PartFacts::between_meshes); compared > 0)
    text += fmt::format("; {} equal among ranks of different meshes", counted(compared, "part"));
  if (const int64_t alone = most(&PartFacts::alone); alone > 0)
    text += fmt::format(
        "; of {} that only one rank has, the layout is equal and the values are finite, and they are not compared",
        counted(alone, "part"));
  RankSet outside;
  for (size_t i = 0; i < facts.size(); ++i)
    if (facts[i].elsewhere > 0) outside.insert(about.rank_at(i));
  if (!outside.empty())
    text += fmt::format("; {} {} outside of the mesh of {}, and {} no part to compare", outside.words(),
                        outside.size() == 1 ? "is" : "are", counted(most(&PartFacts::elsewhere), "tensor"),
                        outside.size() == 1 ? "has" : "have");
  return text;
}

/// Has parts that all of `ranks` should have alike. A single rank has them for itself.
struct ReplicaGroup {
  RankSet ranks;
  bool in_one_mesh = true;
  Subject subject;
};

Hash key_of(const Part& part) { return hash_of(part.item.name + "\n" + part.place); }

/// Groups by the keys of all ranks' parts; in the same order on ranks that share several groups.
std::vector<ReplicaGroup> groups_of(const ShardedSubject& subject, const About& about,
                                    const std::vector<std::vector<Hash>>& keys) {
  std::map<Hash, RankSet> ranks_of;
  for (size_t i = 0; i < keys.size(); ++i)
    for (const Hash& each : keys[i]) ranks_of[each].insert(about.rank_at(i));
  std::map<std::vector<int>, ReplicaGroup> groups;
  for (const Part& part : subject.parts) {
    const RankSet& ranks = ranks_of.at(key_of(part));
    ReplicaGroup& group = groups[ranks.ranks()];
    group.ranks = ranks;
    group.in_one_mesh = group.in_one_mesh && (ranks - part.mesh).empty();
    group.subject.items.push_back(part.item);
  }
  std::vector<ReplicaGroup> result;
  for (auto& [ranks, group] : groups) {
    group.subject.name = subject.common.name;
    group.subject.type = subject.common.type;
    number_equal_names(group.subject.items);
    result.push_back(std::move(group));
  }
  return result;
}

}  // namespace

Report verify_sharded(const ShardedSubject& subject, const VerifyOptions& options) {
  const VerifyOptions silent = VerifyOptions(options).publish(false);
  Report report = verify_subject(subject.common, silent);
  if (report.took_part.empty()) return report;
  const auto has = [&](Verdict verdict) {
    return std::ranges::any_of(report.findings, [&](const Finding& each) { return each.verdict == verdict; });
  };
  // Each rank derives from this report, which is the same everywhere, that the call has failed, and that another rank
  // may have a divided tensor where it has none.
  const bool called = std::ranges::none_of(report.findings, is_call);
  if (called && (!subject.parts.empty() || subject.elsewhere > 0 || has(Verdict::missing))) {
    const auto inspection_of = [&](const char* variant) {
      return Inspection({.inspector = "verify",
                         .object = subject.common.name,
                         .type = subject.common.type.empty() ? "container" : subject.common.type,
                         .variant = variant,
                         .step = subject.common.step},
                        silent);
    };
    std::vector<Hash> keys;
    for (const Part& each : subject.parts) keys.push_back(key_of(each));
    Inspection placing = inspection_of("places of parts");
    const auto all_keys = placing.exchange_facts(keys);
    Report parts;
    if (!all_keys) {
      placing.conclude(parts);
    } else {
      PartFacts mine{.elsewhere = subject.elsewhere};
      for (const ReplicaGroup& group : groups_of(subject, placing.about(), *all_keys)) {
        look_for_nan(group.subject, mine);
        const auto count = static_cast<int64_t>(group.subject.items.size());
        if (group.ranks.size() < 2) {
          mine.alone += count;
          continue;
        }
        (group.in_one_mesh ? mine.compared : mine.between_meshes) += count;
        const Report part = verify_subject(group.subject, VerifyOptions(silent).ranks(group.ranks));
        report.tensors += part.tensors;
        report.bytes += part.bytes;
        for (Finding each : part.findings) {
          if (each.verdict == Verdict::ok) continue;
          if (is_fault(each) && !group.in_one_mesh)
            each.message += fmt::format(
                "; no mesh has {} together, so no reduction over a mesh keeps them equal: the mesh of one dimension in "
                "place of all?",
                group.ranks.words());
          mine.findings.push_back(std::move(each));
        }
      }
      Inspection inspection = inspection_of("parts");
      if (const auto facts = inspection.exchange_facts(mine)) {
        std::vector<json> seen;
        for (const PartFacts& each : *facts)
          for (const Finding& finding : each.findings) {
            json text = finding;
            if (std::ranges::find(seen, text) != seen.end()) continue;
            seen.push_back(std::move(text));
            inspection.add(finding);
          }
        inspection.add(not_finite_findings(inspection.about(), *facts));
        for (Finding& each : report.findings)
          if (each.verdict == Verdict::ok) each.message += coverage(inspection.about(), *facts);
      }
      inspection.conclude(parts);
    }
    if (!parts.ok()) std::erase_if(report.findings, [](const Finding& each) { return each.verdict == Verdict::ok; });
    for (Finding& each : parts.findings) report.findings.push_back(std::move(each));
    report.seconds += parts.seconds;
  }
  if (options.publish()) {
    if (options.publish_ok())
      publish_from_reporting_rank(report);
    else
      publish_from_reporting_rank(report, is_not_ok);
  }
  return report;
}

}  // namespace lockstep::inspect
