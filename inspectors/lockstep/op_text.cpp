#include "inspectors/lockstep/op_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep::inspect {
namespace {

std::string without_underscores(const std::string& name) {
  const size_t start = name.find_first_not_of('_');
  return start == std::string::npos ? name : name.substr(start);
}

std::string phase_of(const OpDescription& op) {
  if (op.engine) return "backward";
  return op.grad ? "forward" : "without a graph";
}

}  // namespace

std::string op_text(const OpDescription& op) {
  std::vector<std::string> details = {fmt::format("operator {}", op.number)};
  if (!op.forward.empty())
    details.push_back("in the backward of " + without_underscores(op.forward));
  else if (!op.node.empty())
    details.push_back("in " + op.node);
  else
    details.push_back(phase_of(op));
  if (!op.module.empty()) details.push_back((op.after_module ? "after module " : "module ") + op.module);
  return fmt::format("{} ({})", without_underscores(op.name), fmt::join(details, ", "));
}

std::string mark_text(const MarkDescription& mark) {
  if (mark.name) return mark.kind == OpMark::Kind::kNumber ? fmt::format("argument '{}'", *mark.name) : *mark.name;
  std::string text = fmt::format("argument {}", mark.argument);
  if (mark.kind != OpMark::Kind::kNumber) text += fmt::format(", {} {}", mark.dtype, mark.shape);
  return text;
}

std::optional<size_t> first_difference(const OpDescriptions& runs, Marks marks) {
  const auto& first = (*runs[0]).*marks;
  for (size_t index = 0; index < first.size(); ++index)
    for (const auto& run : runs) {
      const auto& theirs = (*run).*marks;
      if (index >= theirs.size() || first[index].hash != theirs[index].hash ||
          first[index].shape != theirs[index].shape)
        return index;
    }
  return std::nullopt;
}

bool values_differ(const OpDescriptions& runs, Marks marks, size_t index) {
  const auto& first = (*runs[0]).*marks;
  return std::ranges::any_of(runs, [&](const auto& run) {
    const auto& theirs = (*run).*marks;
    return index >= theirs.size() || theirs[index].hash != first[index].hash;
  });
}

std::string values_text(const OpDescriptions& runs, Marks marks, size_t index, const RankSet& runs_are,
                        const char* on) {
  constexpr size_t kMost = 3;
  std::vector<std::string> texts;
  std::vector<uint64_t> seen;
  std::string what = "norm";
  for (size_t i = 0; i < runs.size() && texts.size() < kMost; ++i) {
    const auto& all = (*runs[i]).*marks;
    if (index >= all.size() || std::ranges::find(seen, all[index].hash) != seen.end()) continue;
    seen.push_back(all[index].hash);
    if (all[index].kind == OpMark::Kind::kNumber) what = "value";
    const std::string value = all[index].value.empty() ? fmt::format("{:.9g}", all[index].norm) : all[index].value;
    texts.push_back(fmt::format("{} {} {}", value, on, runs_are.ranks()[i]));
  }
  return fmt::format("{} {}", what, fmt::join(texts, ", "));
}

FindingTensor tensor_of(const MarkDescription& mark, const std::string& default_name) {
  FindingTensor tensor{.name = mark.name.value_or(default_name), .dtype = mark.dtype};
  const auto shape = nlohmann::json::parse(mark.shape, nullptr, false);
  if (shape.is_array()) tensor.shape = shape.get<std::vector<int64_t>>();
  return tensor;
}

Finding finding_at(const About& about, const std::optional<OpDescription>& op, Verdict verdict, FindingKind kind) {
  Finding finding = about.finding(Severity::fault, verdict, kind);
  if (!op) return finding;
  finding.op =
      FindingOp{.name = without_underscores(op->name), .seq = op->number, .shape = {}, .dtype = "", .group = ""};
  if (!op->outputs.empty()) {
    const FindingTensor output = tensor_of(op->outputs.front(), "");
    finding.op->shape = output.shape;
    finding.op->dtype = output.dtype;
  }
  if (!op->where.empty()) finding.where = op->where;
  if (!op->object.empty()) finding.object = op->object;
  return finding;
}

}  // namespace lockstep::inspect
