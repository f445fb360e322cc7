#include "inspectors/lockstep/op_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "inspectors/trace/op_record.h"

namespace lockstep::inspect {

using nlohmann::json;

namespace {

std::string plain(const std::string& name) {
  const size_t start = name.find_first_not_of('_');
  return start == std::string::npos ? name : name.substr(start);
}

std::string phase_of(const json& place) {
  if (place.at("engine").get<bool>()) return "backward";
  return place.at("grad").get<bool>() ? "forward" : "without a graph";
}

}  // namespace

std::string op_text(const json& place) {
  std::vector<std::string> details = {fmt::format("operator {}", place.at("number").get<int64_t>())};
  const std::string node = place.at("node"), forward = place.at("forward"), module = place.at("module");
  if (!forward.empty())
    details.push_back("in the backward of " + plain(forward));
  else if (!node.empty())
    details.push_back("in " + node);
  else
    details.push_back(phase_of(place));
  if (!module.empty()) details.push_back((place.at("after").get<bool>() ? "after module " : "module ") + module);
  return fmt::format("{} ({})", plain(place.at("name").get<std::string>()), fmt::join(details, ", "));
}

const json* differing(const std::vector<json>& places, const char* which, size_t& index) {
  for (index = 0; index < places[0].at(which).size(); ++index)
    for (const json& place : places) {
      if (index >= place.at(which).size()) return &places[0].at(which)[index];
      const json &mine = places[0].at(which)[index], &other = place.at(which)[index];
      if (mine.at("hash") != other.at("hash") || mine.at("shape") != other.at("shape")) return &mine;
    }
  return nullptr;
}

std::string values_text(const std::vector<json>& places, const char* which, size_t index, const RankSet& ranks,
                        const char* who) {
  std::vector<std::string> texts;
  std::vector<uint64_t> seen;
  std::string what = "norm";
  for (size_t i = 0; i < places.size() && texts.size() < 3; ++i) {
    if (index >= places[i].at(which).size()) continue;
    const json& mark = places[i].at(which)[index];
    const auto hash = mark.at("hash").get<uint64_t>();
    if (std::find(seen.begin(), seen.end(), hash) != seen.end()) continue;
    seen.push_back(hash);
    if (mark.at("kind") == static_cast<int>(OpMark::Kind::kNumber)) what = "value";
    texts.push_back(fmt::format("{:.9g} {} {}", mark.at("norm").get<double>(), who, ranks.ranks()[i]));
  }
  return what + " " + fmt::format("{}", fmt::join(texts, ", "));
}

std::string mark_text(const json& mark) {
  if (mark.at("name").is_string()) return mark.at("name").get<std::string>();
  std::string text = fmt::format("argument {}", mark.at("argument").get<int>());
  if (mark.at("kind") != static_cast<int>(OpMark::Kind::kNumber))
    text += fmt::format(", {} {}", mark.at("dtype").get<std::string>(), mark.at("shape").get<std::string>());
  return text;
}

FindingTensor tensor_of(const json& mark, const std::string& otherwise) {
  FindingTensor tensor;
  tensor.name = mark.at("name").is_string() ? mark.at("name").get<std::string>() : otherwise;
  tensor.dtype = mark.at("dtype");
  const json shape = json::parse(mark.at("shape").get<std::string>(), nullptr, false);
  if (shape.is_array()) tensor.shape = shape.get<std::vector<int64_t>>();
  return tensor;
}

Finding finding_at(const json& place, const char* verdict, const char* kind, const LockstepOptions& options) {
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "lockstep";
  finding.verdict = verdict;
  finding.kind = kind;
  finding.step = options.step();
  if (place.is_null()) return finding;
  FindingOp op{.name = plain(place.at("name").get<std::string>()),
               .seq = place.at("number"),
               .shape = {},
               .dtype = "",
               .group = ""};
  for (const json& output : place.at("outputs")) {
    const FindingTensor tensor = tensor_of(output, "");
    op.shape = tensor.shape;
    op.dtype = tensor.dtype;
    break;
  }
  finding.op = std::move(op);
  if (const std::string where = place.at("where"); !where.empty()) finding.where = where;
  if (const std::string object = place.at("object"); !object.empty()) finding.object = object;
  return finding;
}

}  // namespace lockstep::inspect
