#include "inspectors/subject/structure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "collectives/log/collective_op.h"
#include "inspectors/findings/text.h"
#include "inspectors/subject/differences.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

json described(const Item& item) {
  json result = {{"name", item.name}, {"kind", item.kind}, {"trainable", item.trainable}};
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

/// What a list says, made for looking up.
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

/// An aspect of an item on which ranks can be at odds, and what findings call that.
struct Aspect {
  const char* field;
  const char* verdict;
  const char* name;
  Severity severity;
};
constexpr Aspect kAspects[] = {{"kind", "mismatch", "kind", Severity::fault},
                               {"shape", "shape_mismatch", "shape", Severity::fault},
                               {"dtype", "dtype_mismatch", "dtype", Severity::fault},
                               {"trainable", "mismatch", "requires_grad", Severity::fault},
                               {"device", "mismatch", "device type", Severity::note}};

std::string value_text(const json& value) {
  if (value.is_array()) return list_text(value);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// "[3] on rank 1, [4] on ranks 0,2"
std::string parties_text(const std::map<json, RankSet>& parties) {
  std::string text;
  for (const auto& [value, party] : parties)
    text += (text.empty() ? "" : ", ") + value_text(value) + " on " + party.words();
  return text;
}

/// Who is at fault where ranks have different values: those outside the majority, or all.
ItemDifference judge(const RankSet& ranks, const std::map<json, RankSet>& parties) {
  ItemDifference verdict;
  verdict.faulty = ranks;
  for (const auto& [value, party] : parties) {
    if (party.size() * 2 <= ranks.size()) continue;
    verdict.reference = party;
    verdict.faulty = ranks - party;
  }
  return verdict;
}

/// Findings of one sort, in which tensors gather.
class Gathering {
 public:
  void add(const Aspect& aspect, const ItemDifference& judged, const json& item, const std::string& text) {
    const std::string kind = item.at("kind");
    for (Finding& each : findings_) {
      if (each.verdict != aspect.verdict || each.kind != kind || each.ranks != judged.faulty ||
          each.reference_ranks != judged.reference || aspects_[&each - findings_.data()] != aspect.name)
        continue;
      each.tensors.push_back(tensor_of(item));
      return;
    }
    Finding finding;
    finding.severity = aspect.severity;
    finding.inspector = "verify";
    finding.verdict = aspect.verdict;
    finding.kind = kind;
    finding.ranks = judged.faulty;
    finding.reference_ranks = judged.reference;
    finding.tensors = {tensor_of(item)};
    finding.message = text;
    findings_.push_back(std::move(finding));
    aspects_.emplace_back(aspect.name);
  }

  std::vector<Finding> take() {
    for (Finding& each : findings_)
      if (each.tensors.size() > 1) each.message += fmt::format("; the same for {} in all", each.tensors.size());
    return std::move(findings_);
  }

 private:
  std::vector<Finding> findings_;
  std::vector<std::string> aspects_;
};

}  // namespace

Hash structure_hash(const Subject& subject) {
  std::string text = subject.type;
  for (const Item& item : subject.items) {
    text += fmt::format("\n{}|{}|{}", item.name, item.kind, item.trainable);
    if (!item.tensor.defined()) continue;
    text += fmt::format("|{}|{}|{}", static_cast<int>(item.tensor.scalar_type()), fmt::join(item.tensor.sizes(), ","),
                        static_cast<int>(item.tensor.device().type()));
  }
  return hash_of(text);
}

StructureDifference structure_difference(Exchange& exchange, const Subject& subject) {
  json mine = json::array();
  for (const Item& item : subject.items) mine.push_back(described(item));
  std::vector<Listing> listings;
  for (const json& list : exchange.gather_json(mine)) listings.push_back(listing_of(list));
  const auto& ranks = exchange.ranks().ranks();

  // Every name, those of the first rank first.
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const Listing& each : listings)
    for (const std::string& name : each.names)
      if (known.insert(name).second) names.push_back(name);

  Gathering gathering;
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
      const ItemDifference judged = judge(exchange.ranks(), {{true, present}, {false, absent}});
      gathering.add({"", "missing", "missing", Severity::fault}, judged, *item,
                    fmt::format("{} {} {}, which {} {} not have", present.words(), present.size() == 1 ? "has" : "have",
                                label, absent.words(), absent.size() == 1 ? "does" : "do"));
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
      gathering.add(
          {"", "missing", "undefined", Severity::fault}, judge(exchange.ranks(), {{true, defined}, {false, undefined}}),
          listings[first].items.at(name),
          fmt::format("{} is undefined on {}, and a tensor on {}", label, undefined.words(), defined.words()));
      continue;
    }
    bool comparable = true;
    for (const Aspect& aspect : kAspects) {
      std::map<json, RankSet> parties;
      for (size_t i = 0; i < listings.size(); ++i)
        parties[listings[i].items.at(name).at(aspect.field)].insert(ranks[i]);
      if (parties.size() == 1) continue;
      if (aspect.field != std::string("trainable") && aspect.field != std::string("device")) comparable = false;
      gathering.add(
          aspect, judge(exchange.ranks(), parties), *item,
          fmt::format("{}: {}",
                      name.empty() ? fmt::format("its {}", aspect.name) : fmt::format("{} of {}", aspect.name, name),
                      parties_text(parties)));
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
    const ItemDifference judged = judge(exchange.ranks(), orders);
    const std::string text =
        fmt::format("{} {} the same names in another order{}: DistributedDataParallel reduces by order, not by name",
                    judged.faulty.words(), judged.faulty.size() == 1 ? "has" : "have",
                    judged.reference.empty() ? "" : " than " + judged.reference.words());
    for (size_t place = 0; place < everywhere.size(); ++place) {
      const json& name = orders.begin()->first.at(place);
      const bool moved =
          std::any_of(orders.begin(), orders.end(), [&](const auto& each) { return each.first.at(place) != name; });
      if (moved)
        gathering.add({"", "order_mismatch", "order", Severity::fault}, judged, listings[0].items.at(name), text);
    }
  }
  result.findings = gathering.take();
  return result;
}

}  // namespace lockstep::inspect
