#include "inspectors/grads/grads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "ddp/inspection.h"
#include "inspectors/exchange/side_channel.h"
#include "inspectors/findings/text.h"
#include "inspectors/grads/findings.h"
#include "inspectors/subject/differences.h"
#include "inspectors/subject/structure.h"
#include "inspectors/verify/findings.h"
#include "inspectors/verify/verify.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

/// The parameters as something whose structure can be compared.
Subject structure_of(const GradientSubject& subject) {
  Subject result;
  result.name = subject.name;
  result.type = subject.type;
  for (const GradientOwner& each : subject.parameters)
    result.items.push_back({.name = each.name,
                            .kind = "parameter",
                            .tensor = each.parameter.detach(),
                            .value = {},
                            .trainable = each.parameter.requires_grad()});
  return result;
}

std::vector<size_t> places_of(const GradientSubject& subject, const std::vector<std::string>& names) {
  std::map<std::string, size_t> by_name;
  for (size_t i = 0; i < subject.parameters.size(); ++i) by_name.emplace(subject.parameters[i].name, i);
  std::vector<size_t> places;
  for (const std::string& name : names) places.push_back(by_name.at(name));
  return places;
}

/// Parameters that are trained; a frozen one may have an old gradient that nobody looks at.
std::vector<size_t> trained(const GradientSubject& subject, const std::vector<size_t>& places) {
  std::vector<size_t> result;
  for (const size_t place : places)
    if (subject.parameters[place].parameter.requires_grad()) result.push_back(place);
  return result;
}

/// The gradients that every rank has, where some are not the same everywhere.
void compare_contents(Talk& talk, const GradientSubject& subject, const std::vector<size_t>& places,
                      const std::vector<RankFacts>& facts, const GradsOptions& options, GradsFindings& findings) {
  Subject compared;
  compared.name = subject.name;
  compared.type = subject.type;
  bool all_same = true;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto& first = facts[0].parameters[i].now;
    const bool everywhere =
        std::all_of(facts.begin(), facts.end(), [&](const RankFacts& each) { return each.parameters[i].now.present; });
    const bool same = std::all_of(facts.begin(), facts.end(), [&](const RankFacts& each) {
      return each.parameters[i].now.mark.hash == first.mark.hash;
    });
    if (!everywhere) continue;
    all_same = all_same && same;
    const GradientOwner& owner = subject.parameters[places[i]];
    const char* suffix = "";
    for (const at::Tensor& part : strided_parts(owner.parameter.grad())) {
      compared.items.push_back({.name = owner.name + suffix, .kind = "gradient", .tensor = part, .value = {}});
      suffix = ".indices";
    }
  }
  if (all_same) return;
  const Comparison comparison{.tolerance = {}, .detail_bytes = options.detail_bytes()};
  // Sparse gradients and such that an optimizer's own hooks have reshaped need not be alike even in form.
  const std::vector<json> structures = talk.exchange_json(structure_hash(compared));
  const bool alike =
      std::all_of(structures.begin(), structures.end(), [&](const json& each) { return each == structures[0]; });
  if (!alike) {
    StructureDifference difference = structure_difference(talk, compared);
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
  findings.differences(compared, find_differences(talk, compared, hashes, comparison));
}

struct Round {
  Report report;
  RankSet absent;  // did not call
  RankSet out_of_data;  // in join(), this rank possibly among them
};

/// One comparison over all of `talk`'s ranks.
Round compare_over(Talk& talk, const GradientSubject& subject, const GradsOptions& options, bool uneven) {
  const auto start = Clock::now();
  Round round;
  const Subject structure = structure_of(subject);
  const bool out_of_data = subject.wrapper && ddp::Inspection(*subject.wrapper).has_stale_gradients();
  const json signature = {{"name", subject.name},
                          {"type", subject.type},
                          {"method", options.local() ? "gradients before the reduction" : "gradients"},
                          {"structure", structure_hash(structure)},
                          {"out_of_data", out_of_data},
                          {"local", subject.wrapper && ddp::Inspection(*subject.wrapper).last_forward_was_local()}};
  const Meeting meeting = talk.meet(json::to_cbor(signature));
  const auto finish = [&](GradsFindings& findings) {
    round.report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    round.report.findings = findings.take(round.report);
    return round;
  };
  WrapperFacts wrapper;
  if (subject.wrapper) {
    wrapper.there = true;
    wrapper.skips_unused =
        subject.wrapper->options().find_unused_parameters() || subject.wrapper->options().static_graph();
    wrapper.uneven = uneven;
  }
  std::vector<json> signatures;
  for (const Bytes& each : meeting.values) signatures.push_back(json::from_cbor(each));
  const auto all_agree = [&](const char* field) {
    return std::all_of(signatures.begin(), signatures.end(),
                       [&](const json& each) { return each.at(field) == signatures[0].at(field); });
  };
  if (!meeting.missing.empty() || !all_agree("name") || !all_agree("type") || !all_agree("method")) {
    VerifyOptions told;
    told.deadline(options.deadline());
    VerifyFindings call(structure, talk.ranks(), told, "grads");
    if (!meeting.missing.empty())
      call.absent(meeting);
    else
      call.different_objects(signatures);
    round.absent = meeting.missing;
    GradsFindings findings(subject, options, talk.ranks(), wrapper, {}, {});
    findings.add(call.take({}));
    return finish(findings);
  }
  const auto& ranks = talk.ranks().ranks();
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (signatures[i].at("out_of_data")) round.out_of_data.insert(ranks[i]);
    if (signatures[i].at("local")) wrapper.last_was_local = true;
  }
  if (!round.out_of_data.empty() && round.out_of_data.size() < ranks.size()) return round;

  std::vector<std::string> names;
  StructureDifference difference;
  if (!all_agree("structure")) {
    difference = structure_difference(talk, structure);
    names = difference.comparable;
  } else {
    for (const GradientOwner& each : subject.parameters) names.push_back(each.name);
  }
  // Frozen on some ranks: told of as a difference of requires_grad, and nothing more.
  std::vector<size_t> places = places_of(subject, names);
  if (!all_agree("structure")) {
    std::vector<bool> mine;
    for (const size_t place : places) mine.push_back(subject.parameters[place].parameter.requires_grad());
    std::vector<bool> everywhere(places.size(), true);
    for (const json& each : talk.exchange_json(mine))
      for (size_t i = 0; i < places.size(); ++i) everywhere[i] = everywhere[i] && each.at(i).get<bool>();
    std::vector<size_t> kept;
    for (size_t i = 0; i < places.size(); ++i)
      if (everywhere[i]) kept.push_back(places[i]);
    places = kept;
  } else {
    places = trained(subject, places);
  }

  std::vector<RankFacts> facts;
  for (const json& each : talk.exchange_json(facts_of(subject, places))) facts.push_back(each.get<RankFacts>());
  std::vector<GradientOwner> owners;
  for (const size_t place : places) {
    owners.push_back(subject.parameters[place]);
    const at::Tensor& gradient = owners.back().parameter.grad();
    if (!gradient.defined()) continue;
    ++round.report.tensors;
    for (const at::Tensor& part : strided_parts(gradient)) round.report.bytes += static_cast<int64_t>(part.nbytes());
  }
  GradsFindings findings(subject, options, talk.ranks(), wrapper, owners, facts);
  findings.add(std::move(difference.findings));
  if (options.local()) {
    findings.local();
  } else {
    compare_contents(talk, subject, places, facts, options, findings);
    findings.reduced();
  }
  return finish(findings);
}

Finding note_of_rest(const GradientSubject& subject, const GradsOptions& options, const RankSet& ranks) {
  Finding found;
  found.severity = Severity::note;
  found.inspector = "grads";
  found.verdict = "uneven_data";
  found.ranks = ranks;
  found.object = subject.name.empty() ? subject.type : subject.name;
  found.kind = "gradient";
  found.step = subject.wrapper ? std::optional(subject.wrapper->steps()) : options.step();
  found.message = fmt::format("{} {} out of data (join): {} gradients are of an earlier step and are not compared",
                              ranks.words(), ranks.size() == 1 ? "is" : "are", ranks.size() == 1 ? "its" : "their");
  return found;
}

}  // namespace

Report grads_of(const GradientSubject& subject, const GradsOptions& options) {
  if (!(options.threshold() > 1))
    throw std::invalid_argument(
        fmt::format("inspect::grads: a threshold of {}? It takes a number above 1", options.threshold()));
  if (options.factor() && (!std::isfinite(*options.factor()) || *options.factor() == 0))
    throw std::invalid_argument(
        fmt::format("inspect::grads: a factor of {}? It takes a finite number other than zero", *options.factor()));
  const auto context = dist::current_context();
  const RankSet alive = context ? context->live_ranks() : RankSet{0};
  const int rank = context ? context->rank() : 0;
  const RankSet ranks = options.ranks().value_or(subject.wrapper ? ranks_of(*subject.wrapper, alive) : alive);
  if (!(ranks - alive).empty())
    throw dist::ArgumentError(
        fmt::format("inspect::grads: there is no rank {}; ranks are {}", (ranks - alive).str(), alive.str()));
  if (!ranks.contains(rank)) return {};  // others compare
  const auto compare = [&](const RankSet& among, bool uneven) {
    if (among.size() == 1) {
      LocalRound alone(among);
      return compare_over(*alone.talk(rank), subject, options, uneven);
    }
    ChannelTalk talk(Channel::of(*context), rank, among, options.deadline());
    return compare_over(talk, subject, options, uneven);
  };
  Round round = compare(ranks, false);
  RankSet among = ranks - round.absent;
  if (!round.out_of_data.empty() && round.out_of_data.size() < ranks.size()) {
    const RankSet rest = round.out_of_data;
    among = ranks - rest;
    if (rest.contains(rank))
      round.report = {};
    else
      round = compare(among, true);
    round.report.findings.push_back(note_of_rest(subject, options, rest));
    among = among - round.absent;
  }
  if (options.publish() && rank == among.ranks().front()) publish(round.report);
  return round.report;
}

}  // namespace lockstep::inspect
