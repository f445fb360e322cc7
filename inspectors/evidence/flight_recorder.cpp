#include "inspectors/evidence/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <stdexcept>
#include <unordered_set>

#include "inspectors/evidence/file_bytes.h"
#include "inspectors/evidence/json_value.h"
#include "inspectors/pickle/python_pickle.h"
#include "protocol/whole_number.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

constexpr uint64_t kTreeValueCost = 64;  // what is counted for a value of JSON beside its text, in bytes
constexpr int kDeepestValue = 32;  // a frame of an entry is at depth 5
constexpr int64_t kMostRanks = 1 << 20;

/// Turns a pickle into JSON, so that there is one reader for both.
class PickleToJson {
 public:
  /// A pickle can contain one value in many places, so that a small file is a large tree: this takes from `limit`.
  explicit PickleToJson(const ReadingLimit& limit) : limit_(limit) {}

  json convert(const Pickled& value, int depth = 0) {
    count(*value, depth);
    using Kind = PickledValue::Kind;
    switch (value->kind) {
      case Kind::kPlain:
        return plain(value->text);
      case Kind::kText:
      case Kind::kBytes:
        return checked_text(*value);
      case Kind::kList: {
        json list = json::array();
        for (const Pickled& item : value->items) list.push_back(convert(item, depth + 1));
        return list;
      }
      case Kind::kDictionary: {
        json object = json::object();
        for (const auto& [key, entry] : value->entries) object[name_of(key, depth + 1)] = convert(entry, depth + 1);
        return object;
      }
      case Kind::kCall:  // of LibTorch's own lists: torch.jit._pickle.build_intlist([...])
        if (value->items[0]->text.starts_with("torch.jit._pickle.build_") && value->items[1]->items.size() == 1)
          return convert(value->items[1]->items[0], depth + 1);
        break;
      case Kind::kSet:
      case Kind::kName:
      case Kind::kPersistent:
        break;
    }
    throw std::runtime_error("it has values that a Flight Recorder does not write");
  }

 private:
  void count(const PickledValue& value, int depth) {
    if (depth > kDeepestValue) throw std::runtime_error("its values are nested too deeply");
    limit_.take(kTreeValueCost + value.text.size());
  }

  /// The same few names are in each of a dump's thousands of records.
  std::string name_of(const Pickled& key, int depth) {
    using Kind = PickledValue::Kind;
    count(*key, depth);
    if (key->kind == Kind::kPlain) return key->text;
    if (key->kind != Kind::kText && key->kind != Kind::kBytes)
      throw std::runtime_error("it has keys that a Flight Recorder does not write");
    return checked_text(*key);
  }

  /// Throws where it is not UTF-8, so that no finding has such a text.
  const std::string& checked_text(const PickledValue& value) {
    if (checked_.insert(&value).second) (void)json(value.text).dump();
    return value.text;
  }

  static json plain(const std::string& text) {
    if (text == "None") return nullptr;
    if (text == "True" || text == "False") return text == "True";
    if (const auto whole = protocol::whole_number<int64_t>(text)) return *whole;
    const char* const end = text.data() + text.size();
    double number = 0;
    if (const auto parsed = std::from_chars(text.data(), end, number); parsed.ec == std::errc() && parsed.ptr == end)
      return number;
    return text;
  }

  ReadingLimit limit_;
  std::unordered_set<const PickledValue*> checked_;
};

/// Returns "float32" for c10's "Float".
std::string dtype_of(const std::string& name) {
  static const std::map<std::string_view, std::string_view> dtypes = {
      {"Byte", "uint8"},
      {"Char", "int8"},
      {"Short", "int16"},
      {"Int", "int32"},
      {"Long", "int64"},
      {"Half", "float16"},
      {"Float", "float32"},
      {"Double", "float64"},
      {"ComplexHalf", "complex32"},
      {"ComplexFloat", "complex64"},
      {"ComplexDouble", "complex128"},
      {"Bool", "bool"},
      {"BFloat16", "bfloat16"},
      {"Float8_e5m2", "float8_e5m2"},
      {"Float8_e4m3fn", "float8_e4m3fn"},
      {"Float8_e5m2fnuz", "float8_e5m2fnuz"},
      {"Float8_e4m3fnuz", "float8_e4m3fnuz"},
      {"UInt16", "uint16"},
      {"UInt32", "uint32"},
      {"UInt64", "uint64"},
  };
  const auto found = dtypes.find(name);
  return found == dtypes.end() ? name : std::string(found->second);
}

std::vector<std::vector<int64_t>> shapes_of(const JsonAt& lists) {
  std::vector<std::vector<int64_t>> result;
  for (size_t i = 0; i < lists.array().size(); ++i) {
    const JsonAt list = lists.item(i);
    std::vector<int64_t>& shape = result.emplace_back();
    for (size_t k = 0; k < list.array().size(); ++k) shape.push_back(list.item(k).integer());
  }
  return result;
}

std::vector<std::string> dtypes_of(const JsonAt& list) {
  std::vector<std::string> result;
  for (size_t i = 0; i < list.array().size(); ++i) result.push_back(dtype_of(list.item(i).text()));
  return result;
}

EvidenceState state_of(const JsonAt& value) {
  const std::string word = value.text();
  for (const EvidenceState state : {EvidenceState::scheduled, EvidenceState::started, EvidenceState::completed})
    if (word == state_words(state)) return state;
  value.fail("is the unknown state '" + word + "'");
}

/// "nccl:send 1->2" is of backend nccl, from rank 1 of the group to rank 2; "nccl:recv 3<-0" is of rank 3, from rank 0.
void take_profiling_name(EvidenceCall& call, const std::string& name) {
  std::string_view rest = name;
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    call.backend = rest.substr(0, colon);
    rest.remove_prefix(colon + 1);
  }
  const size_t blank = rest.find(' ');
  call.op = op_of(rest.substr(0, blank));
  if (blank == std::string_view::npos || (call.op != "send" && call.op != "recv")) return;
  const std::string_view ranks = rest.substr(blank + 1);
  const size_t arrow = ranks.find(call.op == "send" ? "->" : "<-");
  if (arrow == std::string_view::npos) return;
  if (const auto peer = protocol::whole_number<int>(ranks.substr(arrow + 2))) call.peer = *peer;
}

EvidenceCall call_of(const JsonAt& entry) {
  EvidenceCall call;
  const JsonAt group = entry.at("process_group");
  if (group.array().size() != 2) group.fail("does not have a name and a description");
  call.group = group.item(0).text();
  call.group_description = group.item(1).text();
  take_profiling_name(call, entry.at("profiling_name").text());
  const auto integer = [&](const char* name) { return entry.find(name) ? entry.at(name).integer() : 0; };
  call.point_to_point = entry.find("is_p2p") ? entry.at("is_p2p").boolean() : call.op == "send" || call.op == "recv";
  call.seq = entry.at(call.point_to_point ? "p2p_seq_id" : "collective_seq_id").integer();
  call.record = integer("record_id");
  call.state = state_of(entry.at("state"));
  call.retired = entry.find("retired") && entry.at("retired").boolean();
  // Gloo has no events to ask: its calls stay "scheduled", and are retired when they have ended.
  if (call.backend == "gloo" && call.retired) call.state = EvidenceState::completed;
  if (entry.find("input_sizes")) call.input_shapes = shapes_of(entry.at("input_sizes"));
  if (entry.find("output_sizes")) call.output_shapes = shapes_of(entry.at("output_sizes"));
  if (entry.find("input_dtypes")) call.input_dtypes = dtypes_of(entry.at("input_dtypes"));
  if (entry.find("output_dtypes")) call.output_dtypes = dtypes_of(entry.at("output_dtypes"));
  call.created_ns = integer("time_created_ns");
  call.started_ns = integer("time_discovered_started_ns");
  call.completed_ns = integer("time_discovered_completed_ns");
  if (entry.find("duration_ms")) call.duration_ms = entry.at("duration_ms").number();
  if (entry.find("timeout_ms")) call.timeout_ms = entry.at("timeout_ms").number();
  if (!entry.find("frames")) return call;
  const JsonAt frames = entry.at("frames");
  for (size_t i = 0; i < frames.array().size(); ++i) {
    const JsonAt frame = frames.item(i);
    call.frames.push_back({.function = frame.find("name") ? frame.at("name").text() : "",
                           .file = frame.find("filename") ? frame.at("filename").text() : "",
                           .line = frame.find("line") ? frame.at("line").integer() : 0});
  }
  return call;
}

/// Reads "[0, 1]", or a list.
std::vector<int> ranks_of(const JsonAt& value) {
  std::vector<int> result;
  const auto add = [&](int64_t rank) {
    if (rank < 0 || rank >= kMostRanks) value.fail("has a rank that is out of range");
    result.push_back(static_cast<int>(rank));
  };
  if (value.value.is_array()) {
    for (size_t i = 0; i < value.array().size(); ++i) add(value.item(i).integer());
    return result;
  }
  const std::string text = value.text();
  for (const char* at = text.data(); at != text.data() + text.size();) {
    int64_t rank = 0;
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), rank);
    if (error == std::errc::result_out_of_range) value.fail("has a rank that is out of range");
    if (error == std::errc()) add(rank);
    at = error == std::errc() ? end : at + 1;
  }
  return result;
}

/// Gloo describes its groups before they have names, each in place of the one before: what is left is the default group,
/// or, after new_group, a group without ranks.
void name_default_group(const Evidence& evidence, EvidenceGroup& group) {
  const auto call = std::ranges::find(evidence.calls, "default_pg", &EvidenceCall::group_description);
  group.name = call == evidence.calls.end() ? "0" : call->group;
  group.description = "default_pg";
}

void take_groups(Evidence& evidence, const JsonAt& dump, const std::map<int64_t, std::string>& names,
                 ReadingLimit& limit) {
  if (dump.find("pg_config")) {
    const JsonAt groups = dump.at("pg_config");
    for (const auto& [name, unused] : groups.object().items()) {
      const JsonAt each = groups.at(name.c_str());
      EvidenceGroup group;
      group.name = each.find("name") ? each.at("name").text() : name;
      if (each.find("desc")) group.description = each.at("desc").text();
      if (each.find("ranks")) group.ranks = ranks_of(each.at("ranks"));
      group.size = static_cast<int>(group.ranks.size());
      if (group.name.empty()) name_default_group(evidence, group);
      evidence.groups.push_back(std::move(group));
    }
  }
  if (!dump.find("pg_status")) return;
  const JsonAt statuses = dump.at("pg_status");
  for (const auto& [id, unused] : statuses.object().items()) {
    const JsonAt status = statuses.at(id.c_str());
    // They are numbered otherwise than the groups; entries have both the number and the name.
    const auto known = names.find(JsonAt{json(id), statuses.where + " key"}.integer());
    if (known == names.end()) continue;
    limit.take(sizeof(EvidenceGroup) * evidence.groups.size());  // each is looked at
    for (EvidenceGroup& group : evidence.groups) {
      if (group.name != known->second) continue;
      EvidenceMember member;
      if (evidence.rank) {
        member.rank = *evidence.rank;
        const auto at = std::ranges::find(group.ranks, *evidence.rank);
        if (at != group.ranks.end()) member.group_rank = static_cast<int>(at - group.ranks.begin());
      }
      const auto number = [&](const char* name) -> std::optional<int64_t> {
        if (!status.find(name)) return std::nullopt;
        const int64_t value = status.at(name).integer();
        return value < 0 ? std::nullopt : std::optional(value);  // -1: none yet, or not recorded
      };
      member.last_scheduled = number("last_enqueued_collective");
      member.last_started = number("last_started_collective");
      member.last_completed = number("last_completed_collective");
      group.members.push_back(std::move(member));
    }
  }
}

Evidence evidence_of(const json& parsed, const std::string& origin, std::optional<int> rank, ReadingLimit limit) {
  const JsonAt dump{parsed, origin};
  Evidence evidence;
  evidence.source = EvidenceSource::flight_recorder;
  evidence.origin = origin;
  evidence.rank = rank;
  evidence.version = dump.at("version").text();
  if (!evidence.version.starts_with("2."))
    dump.fail(fmt::format("is of version {} of the Flight Recorder's format; this program reads versions 2.x",
                          evidence.version));
  std::map<int64_t, std::string> names;  // number of a group → its name
  if (dump.find("entries")) {
    const JsonAt entries = dump.at("entries");
    for (size_t i = 0; i < entries.array().size(); ++i) {
      const JsonAt entry = entries.item(i);
      EvidenceCall call = call_of(entry);
      if (entry.find("pg_id")) names[entry.at("pg_id").integer()] = call.group;
      evidence.calls.push_back(std::move(call));
    }
  }
  take_groups(evidence, dump, names, limit);
  drop_destroyed_groups(evidence);
  return evidence;
}

}  // namespace

Evidence read_flight_recorder(std::string_view bytes, const std::string& origin, std::optional<int> rank,
                              ReadingLimit limit) try {
  if (bytes.size() > kLargestDump)
    throw UnreadableEvidence(
        fmt::format("{} has {} bytes; dumps of up to {} bytes are read", origin, bytes.size(), kLargestDump));
  const size_t begin = bytes.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) throw UnreadableEvidence(origin + " is empty");
  if (bytes[begin] == '{') return evidence_of(parse_json(bytes, origin, limit), origin, rank, limit);
  json parsed;
  try {
    const Pickle pickle(bytes, limit);
    parsed = PickleToJson(pickle.limit()).convert(pickle.value());
  } catch (const UnreadableEvidence&) {
    throw;
  } catch (const ReadingLimitError&) {
    throw;
  } catch (const std::exception& error) {  // the pickle reader's own words
    throw UnreadableEvidence(fmt::format("{} is no dump of a Flight Recorder: {}", origin, error.what()));
  }
  return evidence_of(parsed, origin, rank, limit);
} catch (const ReadingLimitError& error) {
  throw EvidenceTooLarge(fmt::format("{}: {}", origin, error.what()));
}

Evidence read_flight_recorder_file(const std::string& path, std::optional<int> rank) {
  ReadingLimit limit;
  const std::string bytes = file_bytes(path, kLargestDump, limit);
  return read_flight_recorder(bytes, path, rank ? rank : rank_in_file_name(path), limit);
}

}  // namespace lockstep::inspect
