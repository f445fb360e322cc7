// JSON for plain structs: one line per struct lists its fields; optionals are null when absent; a field that is missing
// keeps its default, and the error about one of another type names it.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

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

namespace lockstep::protocol {
/// Throws nlohmann::json::type_error that names the field.
template <typename T>
void read_field(const nlohmann::json& json, const char* name, T& field) {
  if (!json.is_object())
    throw nlohmann::json::type_error::create(302, std::string("type must be object, but is ") + json.type_name(),
                                             nullptr);
  const auto found = json.find(name);
  if (found == json.end()) return;
  try {
    found->get_to(field);
  } catch (const nlohmann::json::exception& error) {
    const std::string_view why = error.what();  // "[json.exception.type_error.302] type must be number, but is string"
    throw nlohmann::json::type_error::create(302, name + (":" + std::string(why.substr(why.find(']') + 1))), nullptr);
  }
}
}  // namespace lockstep::protocol

#define LOCKSTEP_READ_FIELD(FIELD) ::lockstep::protocol::read_field(json, #FIELD, value.FIELD);
/// Defines to_json and from_json of STRUCT, which a header declares, in the namespace where it stands.
#define LOCKSTEP_DECLARED_JSON(STRUCT, ...)                                      \
  void to_json(nlohmann::json& nlohmann_json_j, const STRUCT& nlohmann_json_t) { \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__))     \
  }                                                                              \
  void from_json(const nlohmann::json& json, STRUCT& value) {                    \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(LOCKSTEP_READ_FIELD, __VA_ARGS__))  \
  }
/// Declares them as well.
#define LOCKSTEP_JSON(STRUCT, ...)                            \
  inline void to_json(nlohmann::json& json, const STRUCT&);   \
  inline void from_json(const nlohmann::json& json, STRUCT&); \
  LOCKSTEP_DECLARED_JSON(STRUCT, __VA_ARGS__)
