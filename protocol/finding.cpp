#include "protocol/finding.h"

#include <iomanip>
#include <ostream>
#include <sstream>

#include "protocol/json_fields.h"
#include "protocol/whole_number.h"

namespace lockstep {

void set_message_with_ranks(Finding& finding, const std::string& what) {
  finding.subject = "on " + finding.ranks.words();
  finding.message = finding.subject + " " + what;
}

std::string message_without_ranks(const Finding& finding) { return finding.message.substr(finding.subject.size() + 1); }

namespace {

void write_list(std::ostream& out, const std::vector<int64_t>& numbers) {
  out << '[';
  for (size_t i = 0; i < numbers.size(); ++i) out << (i > 0 ? ", " : "") << numbers[i];
  out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const FindingTensor& tensor) {
  out << tensor.name;
  if (!tensor.dtype.empty()) {
    out << ' ';
    write_list(out, tensor.shape);
    out << ' ' << tensor.dtype;
  }
  if (tensor.count) out << ", " << *tensor.count << (*tensor.count == 1 ? " element" : " elements");
  if (!tensor.first.empty()) {
    out << ", first at ";
    write_list(out, tensor.first);
  }
  if (!tensor.max_abs_diff) return out;
  std::ostringstream largest;  // `out` keeps its own precision
  largest << std::setprecision(3) << *tensor.max_abs_diff;
  return out << ", at most " << largest.str() << " apart";
}

std::ostream& operator<<(std::ostream& out, const FindingOp& op) {
  out << op.name << " #" << op.seq << " of group " << op.group;
  if (op.dtype.empty()) return out;
  out << ", ";
  write_list(out, op.shape);
  return out << ' ' << op.dtype;
}

std::ostream& operator<<(std::ostream& out, const Finding& finding) {
  out << finding.inspector << ' ' << finding.verdict << ": ";
  if (finding.object && !finding.object->empty() && *finding.object != finding.inspector)
    out << *finding.object << ": ";
  out << finding.message;
  for (const FindingTensor& tensor : finding.tensors) out << "\n    " << tensor;
  if (finding.where) out << "\n    at " << *finding.where;
  if (finding.step) out << (finding.where ? ", step " : "\n    at step ") << *finding.step;
  return out;
}

void to_json(nlohmann::json& json, const FindingTensor& t) {
  json = {{"name", t.name},
          {"dtype", t.dtype},
          {"shape", t.shape},
          {"count", t.count},
          {"max_abs_diff", t.max_abs_diff},
          {"max_ulp", t.max_ulp}};
  json["first"] = t.first.empty() ? nlohmann::json(nullptr) : nlohmann::json(t.first);
  json["norms"] = nullptr;
  for (const auto& [rank, norm] : t.norms) json["norms"][std::to_string(rank)] = norm;
}

void from_json(const nlohmann::json& json, FindingTensor& t) {
  json.at("name").get_to(t.name);
  json.at("dtype").get_to(t.dtype);
  json.at("shape").get_to(t.shape);
  json.at("count").get_to(t.count);
  json.at("max_abs_diff").get_to(t.max_abs_diff);
  if (!json.at("first").is_null()) json.at("first").get_to(t.first);
  if (json.contains("max_ulp")) json.at("max_ulp").get_to(t.max_ulp);
  if (!json.contains("norms") || json.at("norms").is_null()) return;
  for (const auto& [rank, norm] : json.at("norms").items()) {
    const auto number = protocol::whole_number<int>(rank);
    if (!number)
      throw nlohmann::json::type_error::create(302, "norms: type must be rank, but is '" + rank + "'", nullptr);
    t.norms[*number] = norm.get<double>();
  }
}

LOCKSTEP_DECLARED_JSON(FindingOp, name, seq, shape, dtype, group)

void to_json(nlohmann::json& json, const Finding& f) {
  json = {{"severity", f.severity}, {"cell", f.cell},   {"step", f.step},       {"inspector", f.inspector},
          {"verdict", f.verdict},   {"ranks", f.ranks}, {"object", f.object},   {"reference_ranks", f.reference_ranks},
          {"kind", f.kind},         {"op", f.op},       {"tensors", f.tensors}, {"where", f.where},
          {"message", f.message}};
  if (!f.subject.empty()) json["subject"] = f.subject;
  json["tensor"] = f.tensors.empty() ? nlohmann::json(nullptr) : nlohmann::json(f.tensors.front().name);
}

void from_json(const nlohmann::json& json, Finding& f) {
  json.at("severity").get_to(f.severity);
  json.at("cell").get_to(f.cell);
  json.at("step").get_to(f.step);
  json.at("inspector").get_to(f.inspector);
  json.at("verdict").get_to(f.verdict);
  json.at("ranks").get_to(f.ranks);
  json.at("reference_ranks").get_to(f.reference_ranks);
  json.at("object").get_to(f.object);
  json.at("kind").get_to(f.kind);
  json.at("op").get_to(f.op);
  json.at("tensors").get_to(f.tensors);
  json.at("where").get_to(f.where);
  json.at("message").get_to(f.message);
  f.subject = json.value("subject", "");
}

}  // namespace lockstep
