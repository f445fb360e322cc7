#include "inspectors/grads/grads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "collectives/watch/spelling.h"
#include "ddp/inspection.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/exchange/participants.h"
#include "inspectors/grads/findings.h"
#include "inspectors/subject/differences.h"
#include "inspectors/subject/structure.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

/// Returns the parameters as a subject whose structure can be compared.
Subject structure_of(const GradientSubject& subject) {
  Subject result;
  result.name = subject.name;
  result.type = subject.type;
  for (const GradientOwner& each : subject.parameters)
    result.items.push_back({.name = each.name,
                            .kind = FindingKind::parameter,
                            .tensor = each.parameter.detach(),
                            .value = {},
                            .trainable = each.parameter.requires_grad()});
  return result;
}

std::vector<size_t> indices_of(const GradientSubject& subject, const std::vector<std::string>& names) {
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < subject.parameters.size(); ++i) by_name.emplace(subject.parameters[i].name, i);
  std::vector<size_t> indices;
  for (const std::string& name : names) indices.push_back(by_name.at(name));
  return indices;
}

/// Frozen parameters are left out: they may have an old gradient that nothing uses.
bool is_trained(const GradientOwner& owner) { return owner.parameter.requires_grad(); }

/// Compares the gradients that every rank has. Collective if some of them differ.
void compare_contents(Exchange& exchange, const GradientSubject& subject, const std::vector<size_t>& parameters,
                      const std::vector<RankFacts>& facts, const GradsOptions& options, GradsFindings& findings) {
  Subject compared;
  compared.name = subject.name;
  compared.type = subject.type;
  bool all_same = true;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& first = facts[0].parameters[i].now;
    const bool everywhere =
        std::all_of(facts.begin(), facts.end(), [&](const RankFacts& each) { return each.parameters[i].now.present; });
    const bool same = std::all_of(facts.begin(), facts.end(), [&](const RankFacts& each) {
      return each.parameters[i].now.mark.hash == first.mark.hash;
    });
    if (!everywhere) continue;
    all_same = all_same && same;
    const GradientOwner& owner = subject.parameters[parameters[i]];
    const char* suffix = "";
    for (const at::Tensor& part : strided_parts(owner.parameter.grad())) {
      compared.items.push_back(
          {.name = owner.name + suffix, .kind = FindingKind::gradient, .tensor = part, .value = {}});
      suffix = ".indices";
    }
  }
  if (all_same) return;
  const Comparison comparison{.tolerance = {}, .detail_bytes = options.detail_bytes()};
  // Sparse gradients, and gradients that hooks have reshaped, can differ in shape.
  const std::vector<json> structures = exchange.gather_json(structure_hash(compared));
  if (!std::ranges::all_of(structures, [&](const json& each) { return each == structures[0]; })) {
    StructureDifference difference = structure_difference(exchange, compared);
    findings.add(std::move(difference.findings));
    std::map<std::string, Item> by_name;
    for (Item& item : compared.items) by_name[item.name] = std::move(item);
    compared.items.clear();
    for (const std::string& name : difference.comparable) compared.items.push_back(by_name.at(name));
  }
  std::vector<at::Tensor> tensors;
  for (const Item& item : compared.items) tensors.push_back(item.tensor);
  std::vector<Hash> hashes;
  for (const Fingerprint& each : fingerprint(tensors)) hashes.push_back(each.hash);
  findings.differences(compared, find_differences(exchange, compared, hashes, comparison));
}

InspectionCall call_for(const GradientSubject& subject, const GradsOptions& options) {
  InspectionCall call{.inspector = "grads",
                      .object = subject.name,
                      .type = subject.type.empty() ? "container" : subject.type,
                      .variant = options.local() ? "before the reduction" : "after the reduction"};
  if (subject.wrapper) {
    call.ranks = ranks_of(*subject.wrapper, live_ranks());
    call.step = subject.wrapper->steps();
  }
  return call;
}

GradsFacts look(const GradientSubject& subject, const Subject& structure) {
  return {.structure = structure_hash(structure),
          .out_of_data = subject.wrapper && ddp::Inspection(*subject.wrapper).has_stale_gradients(),
          .last_forward_was_local = (subject.wrapper && ddp::Inspection(*subject.wrapper).last_forward_was_local()) ||
                                    (subject.other_wrapper && subject.other_wrapper->last_forward_was_local)};
}

WrapperFacts wrapper_facts(const GradientSubject& subject, const std::vector<GradsFacts>& facts, bool uneven) {
  WrapperFacts wrapper;
  wrapper.last_was_local = std::ranges::any_of(facts, &GradsFacts::last_forward_was_local);
  if (!subject.wrapper && !subject.other_wrapper) return wrapper;
  wrapper.present = true;
  wrapper.skips_unused =
      subject.wrapper ? subject.wrapper->options().find_unused_parameters() || subject.wrapper->options().static_graph()
                      : subject.other_wrapper->skips_unused;
  wrapper.uneven = uneven;
  return wrapper;
}

/// Has the parameters that every rank has and trains, and findings about the others.
struct Common {
  std::vector<size_t> parameters;  // of the subject
  std::vector<Finding> findings;
};

/// Collective if the structures differ.
Common common_parameters(Exchange& exchange, const GradientSubject& subject, const Subject& structure,
                         const std::vector<GradsFacts>& facts) {
  Common common;
  if (std::ranges::all_of(facts, [&](const GradsFacts& each) { return each.structure == facts[0].structure; })) {
    for (size_t i = 0; i < subject.parameters.size(); ++i)
      if (is_trained(subject.parameters[i])) common.parameters.push_back(i);
    return common;
  }
  StructureDifference difference = structure_difference(exchange, structure);
  common.findings = std::move(difference.findings);
  // Parameters that are frozen on some ranks have a finding about requires_grad, and are not compared.
  const std::vector<size_t> comparable = indices_of(subject, difference.comparable);
  std::vector<bool> mine;
  for (const size_t i : comparable) mine.push_back(is_trained(subject.parameters[i]));
  const std::vector<json> all = exchange.gather_json(mine);
  for (size_t i = 0; i < comparable.size(); ++i)
    if (std::ranges::all_of(all, [&](const json& each) { return each.at(i).get<bool>(); }))
      common.parameters.push_back(comparable[i]);
  return common;
}

/// Counts the tensors and bytes that are compared.
void count(const std::vector<GradientOwner>& owners, Report& report) {
  for (const GradientOwner& each : owners) {
    const at::Tensor& gradient = each.parameter.grad();
    if (!gradient.defined()) continue;
    ++report.tensors;
    for (const at::Tensor& part : strided_parts(gradient)) report.bytes += static_cast<int64_t>(part.nbytes());
  }
}

/// Returns the findings about ranks that are not out of data. Collective.
std::vector<Finding> compare(Inspection& inspection, const GradientSubject& subject, const Subject& structure,
                             const GradsOptions& options, const WrapperFacts& wrapper,
                             const std::vector<GradsFacts>& first, Report& report) {
  Exchange& exchange = inspection.exchange();
  Common common = common_parameters(exchange, subject, structure, first);
  std::vector<RankFacts> facts;
  for (const json& each : exchange.gather_json(facts_of(subject, common.parameters)))
    facts.push_back(each.get<RankFacts>());
  std::vector<GradientOwner> owners;
  for (const size_t i : common.parameters) owners.push_back(subject.parameters[i]);
  count(owners, report);
  GradsFindings findings(inspection.about(), subject, options, wrapper, std::move(owners), facts);
  findings.add(std::move(common.findings));
  if (options.local()) {
    findings.local();
  } else {
    compare_contents(exchange, subject, common.parameters, facts, options, findings);
    findings.reduced();
  }
  report.seconds = inspection.seconds();
  return findings.take(report);
}

Finding out_of_data_finding(const About& about, const RankSet& ranks) {
  Finding found = about.finding(Severity::note, Verdict::uneven_data, FindingKind::gradient);
  found.ranks = ranks;
  found.message = fmt::format("{} {} out of data (join): {} gradients are of an earlier step and are not compared",
                              ranks.words(), ranks.size() == 1 ? "is" : "are", ranks.size() == 1 ? "its" : "their");
  return found;
}

void check(const GradsOptions& options) {
  if (!(options.threshold() > 1))
    throw dist::ArgumentError(
        fmt::format("{}: a threshold of {}? It takes a number above 1", inspect_name("grads"), options.threshold()));
  if (options.factor() && (!std::isfinite(*options.factor()) || *options.factor() == 0))
    throw dist::ArgumentError(fmt::format("{}: a factor of {}? It takes a finite number other than zero",
                                          inspect_name("grads"), *options.factor()));
}

}  // namespace

Report grads_of(const GradientSubject& subject, const GradsOptions& options) {
  check(options);
  Report report;
  Inspection inspection(call_for(subject, options), options);
  if (!inspection.takes_part()) return report;
  const Subject structure = structure_of(subject);
  const GradsFacts mine = look(subject, structure);
  if (auto facts = inspection.exchange_facts(mine)) {
    RankSet out_of_data;
    for (size_t i = 0; i < facts->size(); ++i)
      if ((*facts)[i].out_of_data) out_of_data.insert(inspection.about().rank_at(i));
    if (out_of_data.size() == facts->size()) out_of_data = {};
    if (!out_of_data.empty()) {
      std::erase_if(*facts, [](const GradsFacts& each) { return each.out_of_data; });
      inspection.leave_out(out_of_data);
    }
    if (inspection.takes_part())
      inspection.add(compare(inspection, subject, structure, options,
                             wrapper_facts(subject, *facts, /*uneven=*/!out_of_data.empty()), *facts, report));
    if (!out_of_data.empty()) inspection.add(out_of_data_finding(inspection.about(), out_of_data));
  }
  inspection.conclude(report);
  return report;
}

}  // namespace lockstep::inspect
