#include "inspectors/verify/sharded.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "collectives/log/collective_op.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/findings/text.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/subject/difference_findings.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

/// What a rank says to the others about its parts.
struct PartFacts {
  std::vector<Finding> findings;  // of the groups that it is in
  std::vector<FindingTensor> not_finite;  // count: NaN and Inf
  bool nan = false;  // among them
  int64_t compared = 0, alone = 0;  // parts that other ranks have as well, and that this rank has for itself
};

void to_json(json& value, const PartFacts& facts) {
  json not_finite = json::array();
  for (const FindingTensor& each : facts.not_finite)
    not_finite.push_back({each.name, each.dtype, each.shape, *each.count});
  value = {{"findings", facts.findings},
           {"not_finite", not_finite},
           {"nan", facts.nan},
           {"compared", facts.compared},
           {"alone", facts.alone}};
}

void from_json(const json& value, PartFacts& facts) {
  value.at("findings").get_to(facts.findings);
  for (const json& each : value.at("not_finite"))
    facts.not_finite.push_back(
        {.name = each.at(0), .dtype = each.at(1), .shape = each.at(2), .count = each.at(3).get<int64_t>()});
  value.at("nan").get_to(facts.nan);
  value.at("compared").get_to(facts.compared);
  value.at("alone").get_to(facts.alone);
}

bool is_call(const Finding& finding) { return has_kind(finding, FindingKind::call); }

/// NaN and Inf in the parts of this rank. Parts that are equal on several ranks have a finding about each of these.
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

/// One finding for each list of tensors: ranks with NaN in the same ones share it.
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

/// What the `ok` covers besides what all ranks have alike.
std::string coverage(int64_t compared, int64_t alone) {
  std::string text;
  if (compared > 0) text += fmt::format("; {} equal among the ranks that replicate them", counted(compared, "part"));
  if (alone > 0)
    text += fmt::format(
        "; of {} that only one rank has, the layout is equal and the values are finite, and they are not compared",
        counted(alone, "part"));
  return text;
}

}  // namespace

Report verify_sharded(const ShardedSubject& subject, const VerifyOptions& options) {
  if (subject.groups.empty()) return verify_subject(subject.common, options);
  const VerifyOptions silent = VerifyOptions(options).publish(false);
  Report report = verify_subject(subject.common, silent);
  if (report.took_part.empty()) return report;
  // Each rank derives from this report, which is the same everywhere, that the call has failed.
  const bool called = std::ranges::none_of(report.findings, is_call);
  if (called) {
    PartFacts mine;
    std::vector<const ReplicaGroup*> groups;
    for (const ReplicaGroup& each : subject.groups) groups.push_back(&each);
    // Two ranks that share several groups have to come to them in the same order.
    std::ranges::sort(groups, {}, [](const ReplicaGroup* each) { return each->ranks.ranks(); });
    for (const ReplicaGroup* group : groups) {
      look_for_nan(group->subject, mine);
      const auto parts = static_cast<int64_t>(group->subject.items.size());
      if (group->ranks.size() < 2) {
        mine.alone += parts;
        continue;
      }
      mine.compared += parts;
      const Report part = verify_subject(group->subject, VerifyOptions(silent).ranks(group->ranks));
      report.tensors += part.tensors;
      report.bytes += part.bytes;
      for (const Finding& each : part.findings)
        if (!has_verdict(each, Verdict::ok)) mine.findings.push_back(each);
    }
    Inspection inspection({.inspector = "verify",
                           .object = subject.common.name,
                           .type = subject.common.type.empty() ? "container" : subject.common.type,
                           .variant = "parts",
                           .step = subject.common.step},
                          silent);
    Report parts;
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
    }
    inspection.conclude(parts);
    if (!parts.ok()) std::erase_if(report.findings, [](const Finding& each) { return has_verdict(each, Verdict::ok); });
    for (Finding& each : report.findings)
      if (has_verdict(each, Verdict::ok)) each.message += coverage(mine.compared, mine.alone);
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
