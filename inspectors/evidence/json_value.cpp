#include "inspectors/evidence/json_value.h"

#include <cmath>
#include <map>

#include "inspectors/pickle/json_text.h"
#include "protocol/whole_number.h"

namespace lockstep::inspect {

using nlohmann::json;

void JsonAt::fail(const std::string& what) const { throw UnreadableEvidence(where + " " + what); }

JsonAt JsonAt::at(const char* name) const {
  const auto found = object().find(name);
  if (found == value.end()) fail(std::string("has no ") + name);
  return {*found, where + "." + name};
}

const json* JsonAt::find(const char* name) const {
  const auto found = object().find(name);
  return found == value.end() || found->is_null() ? nullptr : &*found;
}

const json& JsonAt::object() const {
  if (!value.is_object()) fail("is not an object");
  return value;
}

const json& JsonAt::array() const {
  if (!value.is_array()) fail("is not a list");
  return value;
}

std::string JsonAt::text() const {
  if (!value.is_string()) fail("is not a text");
  return value.get<std::string>();
}

bool JsonAt::boolean() const {
  if (!value.is_boolean()) fail("is neither true nor false");
  return value.get<bool>();
}

int64_t JsonAt::integer() const {
  if (value.is_number_unsigned()) {
    if (value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) fail("is too large a number");
    return static_cast<int64_t>(value.get<uint64_t>());
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_string())
    if (const auto number = protocol::whole_number<int64_t>(value.get_ref<const std::string&>())) return *number;
  fail("is not a whole number");
}

double JsonAt::number() const {
  if (!value.is_number()) fail("is not a number");
  return value.get<double>();
}

json try_parse_json(std::string_view text, const std::string& origin, ReadingLimit limit) {
  try {
    return read_json(text, limit);
  } catch (const ReadingLimitError& error) {
    throw EvidenceTooLarge(origin + ": " + error.what());
  }
}

json parse_json(std::string_view text, const std::string& origin, ReadingLimit limit) {
  json parsed = try_parse_json(text, origin, limit);
  if (parsed.is_discarded()) throw UnreadableEvidence(origin + " is not JSON, or it is cut off");
  return parsed;
}

std::string op_of(std::string_view word) {
  static const std::map<std::string_view, std::string_view> ops = {
      {"AllReduce", "all_reduce"},
      {"Broadcast", "broadcast"},
      {"Reduce", "reduce"},
      {"AllGather", "all_gather"},
      {"ReduceScatter", "reduce_scatter"},
      {"Send", "send"},
      {"Recv", "recv"},
      {"AlltoAll", "all_to_all"},
      {"_broadcast_oop", "broadcast"},
      {"_reduce_oop", "reduce"},
      {"_all_gather_base", "all_gather_into_tensor"},
      {"all_gather_single", "all_gather_into_tensor"},
      {"all_gather_v", "all_gather"},
      {"_reduce_scatter_base", "reduce_scatter_tensor"},
      {"reduce_scatter_single", "reduce_scatter_tensor"},
      {"reduce_scatter_v", "reduce_scatter"},
      {"all_to_all_v_single", "all_to_all_single"},
      {"all_reduce_barrier", "barrier"},
      {"allreduce_coalesced", "all_reduce_coalesced"},
      {"ALLGATHER_coalesced", "all_gather_coalesced"},
      {"REDUCE_SCATTER_coalesced", "reduce_scatter_tensor_coalesced"},
  };
  const auto found = ops.find(word);
  return std::string(found == ops.end() ? word : found->second);
}

}  // namespace lockstep::inspect
