// JSON for plain structs: one line per struct lists its fields; optionals are null when absent; a field that is missing
// keeps its default.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

namespace nlohmann {
template <typename T>
struct adl_serializer<std::optional<T>> {
  static void to_json(json& j, const std::optional<T>& value) {
    if (value)
      j = *value;
    else
      j = nullptr;
  }
  static void from_json(const json& j, std::optional<T>& value) {
    if (j.is_null())
      value.reset();
    else
      value = j.get<T>();
  }
};
}  // namespace nlohmann

/// Defines to_json and from_json of STRUCT in the namespace where it stands.
#define LOCKSTEP_JSON(STRUCT, ...) NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(STRUCT, __VA_ARGS__)
