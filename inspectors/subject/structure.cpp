#include "inspectors/subject/structure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "collectives/log/collective_op.h"
#include "inspectors/findings/about.h"
#include "inspectors/findings/majority.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

json described(const Item& item) {
  json result = {{"name", item.name}, {"kind", std::string(to_string(item.kind))}, {"trainable", item.trainable}};
  if (item.tensor.defined()) {
    result["dtype"] = dist::dtype_name(static_cast<uint8_t>(item.tensor.scalar_type()));
    result["shape"] = item.tensor.sizes().vec();
    result["device"] = c10::DeviceTypeName(item.tensor.device().type(), /*lower_case=*/true);
  } else {
    result["dtype"] = "";
    result["shape"] = json::array();
    result["device"] = "";
  }
  return result;
}

/// Lists the items of a rank, in order and by name.
struct Listing {
  std::vector<std::string> names;
  std::map<std::string, json> items;
};

Listing listing_of(const json& list) {
  Listing result;
  for (const json& item : list) {
    result.names.push_back(item.at("name"));
    result.items[item.at("name")] = item;
  }
  return result;
}

FindingTensor tensor_of(const json& item) {
  return {.name = item.at("name"), .dtype = item.at("dtype"), .shape = item.at("shape")};
}

std::string list_text(const json& shape) {
  std::string text;
  for (const auto& size : shape) text += (text.empty() ? "" : ", ") + size.dump();
  return "[" + text + "]";
}

/// Is a field in which items can differ, with the verdict and name that findings have for it.
struct Aspect {
  const char* field;
  Verdict verdict;
  const char* name;
  Severity severity;
};
constexpr Aspect kAspects[] = {{"kind", Verdict::mismatch, "kind", Severity::fault},
                               {"shape", Verdict::shape_mismatch, "shape", Severity::fault},
                               {"dtype", Verdict::dtype_mismatch, "dtype", Severity::fault},
                               {"trainable", Verdict::mismatch, "requires_grad", Severity::fault},
                               {"device", Verdict::mismatch, "device type", Severity::note}};

std::string value_text(const json& value) {
  if (value.is_array()) return list_text(value);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Returns "[3] on rank 1, [4] on ranks 0,2".
std::string parties_text(const std::map<json, RankSet>& parties, const About& about) {
  std::string text;
  for (const auto& [value, party] : parties)
    text += (text.empty() ? "" : ", ") + value_text(value) + " " + about.at(party);
  return text;
}

/// Makes findings about items, one for all items that have the same kind, aspect and ranks.
class ItemFindings {
 public:
  /// `direction` is for items that some ranks have and others do not.
  void add(const Aspect& aspect, const Majority& majority, const json& item, const std::string& text,
           const std::string& direction = "") {
    const auto kind = item.at("kind").get<FindingKind>();
    for (Finding& each : findings_) {
      if (each.verdict != aspect.verdict || each.kind != kind || each.ranks != majority.at_fault ||
          each.reference_ranks != majority.reference || aspects_[&each - findings_.data()] != aspect.name)
        continue;
      each.tensors.push_back(tensor_of(item));
      std::vector<Text>& texts = texts_[static_cast<size_t>(&each - findings_.data())];
      const auto known = std::ranges::find(texts, direction, &Text::direction);
      if (known != texts.end())
        ++known->count;
      else
        texts.push_back({direction, text, 1});
      return;
    }
    const About about{.inspector = "verify", .object = {}, .step = {}, .ranks = majority.at_fault};
    Finding finding = about.finding(aspect.severity, aspect.verdict);
    finding.kind = kind;
    finding.reference_ranks = majority.reference;
    finding.tensors = {tensor_of(item)};
    findings_.push_back(std::move(finding));
    texts_.push_back({{direction, text, 1}});
    aspects_.emplace_back(aspect.name);
  }

  std::vector<Finding> take() {
    for (size_t i = 0; i < findings_.size(); ++i)
      for (const Text& each : texts_[i]) {
        std::string& message = findings_[i].message;
        message += (message.empty() ? "" : "; ") + each.text;
        if (each.count > 1) message += fmt::format("; the same for {} items in total", each.count);
      }
    return std::move(findings_);
  }

 private:
  struct Text {
    std::string direction, text;
    int count = 0;
  };
  std::vector<Finding> findings_;
  std::vector<std::string> aspects_;
  std::vector<std::vector<Text>> texts_;  // of each finding
};

}  // namespace

Hash structure_hash(const Subject& subject) {
  std::string text = subject.type;
  for (const Item& item : subject.items) {
    text += fmt::format("\n{}|{}|{}", item.name, to_string(item.kind), item.trainable);
    if (!item.tensor.defined()) continue;
    text += fmt::format("|{}|{}|{}", static_cast<int>(item.tensor.scalar_type()), fmt::join(item.tensor.sizes(), ","),
                        static_cast<int>(item.tensor.device().type()));
  }
  return hash_of(text);
}

StructureDifference structure_difference(Exchange& exchange, const Subject& subject,
                                         const std::vector<std::string>& participants) {
  const About about{.inspector = "verify", .object = {}, .step = {}, .ranks = exchange.ranks(), .names = participants};
  json mine = json::array();
  for (const Item& item : subject.items) mine.push_back(described(item));
  std::vector<Listing> listings;
  for (const json& list : exchange.gather_json(mine)) listings.push_back(listing_of(list));
  const auto& ranks = exchange.ranks().ranks();

  // Has all names, in the order of the first rank that has them.
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const Listing& each : listings)
    for (const std::string& name : each.names)
      if (known.insert(name).second) names.push_back(name);

  ItemFindings findings;
  StructureDifference result;
  std::vector<std::string> everywhere;
  for (const std::string& name : names) {
    RankSet present;
    const json* item = nullptr;
    for (size_t i = 0; i < listings.size(); ++i) {
      const auto found = listings[i].items.find(name);
      if (found == listings[i].items.end()) continue;
      present.insert(ranks[i]);
      if (!item) item = &found->second;
    }
    const std::string label = name.empty() ? "it" : name;
    if (present.size() < ranks.size()) {
      const RankSet absent = exchange.ranks() - present;
      const std::map<bool, RankSet> by_presence = {{true, present}, {false, absent}};
      findings.add(
          {"", Verdict::missing, "missing", Severity::fault}, majority_of(exchange.ranks(), by_presence), *item,
          fmt::format("{} {} {}, which {} {} not have", about.words(present), present.size() == 1 ? "has" : "have",
                      label, about.words(absent), absent.size() == 1 ? "does" : "do"),
          present.str());
      continue;
    }
    everywhere.push_back(name);
    RankSet defined;
    bool one_kind = true;
    for (size_t i = 0; i < listings.size(); ++i) {
      const json& there = listings[i].items.at(name);
      one_kind = one_kind && there.at("kind") == item->at("kind");
      if (there.at("dtype") != "") defined.insert(ranks[i]);
    }
    if (one_kind && !defined.empty() && defined.size() < ranks.size()) {
      const RankSet undefined = exchange.ranks() - defined;
      const size_t first =
          static_cast<size_t>(std::find(ranks.begin(), ranks.end(), defined.ranks().front()) - ranks.begin());
      const std::map<bool, RankSet> by_definition = {{true, defined}, {false, undefined}};
      findings.add({"", Verdict::missing, "undefined", Severity::fault}, majority_of(exchange.ranks(), by_definition),
                   listings[first].items.at(name),
                   fmt::format("{} is undefined {}, and a tensor {}", label, about.at(undefined), about.at(defined)));
      continue;
    }
    bool comparable = true;
    for (const Aspect& aspect : kAspects) {
      std::map<json, RankSet> parties;
      for (size_t i = 0; i < listings.size(); ++i)
        parties[listings[i].items.at(name).at(aspect.field)].insert(ranks[i]);
      if (parties.size() == 1) continue;
      if (aspect.field != std::string("trainable") && aspect.field != std::string("device")) comparable = false;
      findings.add(
          aspect, majority_of(exchange.ranks(), parties), *item,
          fmt::format("{}: {}",
                      name.empty() ? fmt::format("its {}", aspect.name) : fmt::format("{} of {}", aspect.name, name),
                      parties_text(parties, about)));
    }
    if (comparable) result.comparable.push_back(name);
  }

  std::map<json, RankSet> orders;
  for (size_t i = 0; i < listings.size(); ++i) {
    json order = json::array();
    const std::set<std::string> common(everywhere.begin(), everywhere.end());
    for (const std::string& name : listings[i].names)
      if (common.contains(name)) order.push_back(name);
    orders[order].insert(ranks[i]);
  }
  if (orders.size() > 1) {
    const Majority majority = majority_of(exchange.ranks(), orders);
    const std::string text =
        fmt::format("{} {} the same names in another order{}: {} by order, not by name", about.words(majority.at_fault),
                    majority.at_fault.size() == 1 ? "has" : "have",
                    majority.reference.empty() ? "" : " than " + about.words(majority.reference),
                    participants.empty() ? "DistributedDataParallel reduces" : "optimizers count parameters");
    for (size_t index = 0; index < everywhere.size(); ++index) {
      const json& name = orders.begin()->first.at(index);
      const bool moved =
          std::any_of(orders.begin(), orders.end(), [&](const auto& each) { return each.first.at(index) != name; });
      if (moved)
        findings.add({"", Verdict::order_mismatch, "order", Severity::fault}, majority, listings[0].items.at(name),
                     text);
    }
  }
  result.findings = findings.take();
  return result;
}

}  // namespace lockstep::inspect
