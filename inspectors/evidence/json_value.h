// Reads fields of JSON that another program wrote. What is absent or of another type is an UnreadableEvidence.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "inspectors/evidence/evidence.h"
#include "inspectors/pickle/reading_limit.h"

namespace lockstep::inspect {

/// A value and where it stands: "trace_1: entries[3]".
struct JsonAt {
  const nlohmann::json& value;
  std::string where;

  [[noreturn]] void fail(const std::string& what) const;
  bool is_null() const { return value.is_null(); }
  /// Fails if this is no object, or has no such field.
  JsonAt at(const char* name) const;
  /// Returns null where the field is absent or null.
  const nlohmann::json* find(const char* name) const;
  JsonAt item(size_t index) const { return {value[index], where + "[" + std::to_string(index) + "]"}; }

  const nlohmann::json& object() const;
  const nlohmann::json& array() const;
  std::string text() const;
  bool boolean() const;
  /// Returns a number, or a text that is one: the recorder writes some numbers as texts. Fails for other values, and
  /// for numbers beyond 64 bits.
  int64_t integer() const;
  double number() const;
};

/// Parses `text`; fails if it is no JSON, and with EvidenceTooLarge if its values take more than `limit`.
nlohmann::json parse_json(std::string_view text, const std::string& origin, ReadingLimit limit = ReadingLimit());
/// Does the same, with a discarded value for text that is no JSON.
nlohmann::json try_parse_json(std::string_view text, const std::string& origin, ReadingLimit limit = ReadingLimit());

/// Returns "all_reduce" for the words of NCCL and of c10d's backends ("AllReduce"), and others as they are.
std::string op_of(std::string_view word);

}  // namespace lockstep::inspect
