// Turns a std::variant of message structs into JSON: {"kind": NAME, fields...}. A line for each struct gives its kind
// and its fields.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>
#include <variant>

#include "protocol/error.h"
#include "protocol/json_fields.h"

/// Defines kind_of, to_json and from_json of STRUCT in the namespace where it stands.
#define LOCKSTEP_MESSAGE(KIND, STRUCT, ...)                                 \
  static constexpr std::string_view kind_of(const STRUCT*) { return KIND; } \
  LOCKSTEP_JSON(STRUCT, __VA_ARGS__)
/// Does the same for a struct without fields.
#define LOCKSTEP_EMPTY_MESSAGE(KIND, STRUCT)                                                    \
  static constexpr std::string_view kind_of(const STRUCT*) { return KIND; }                     \
  inline void to_json(nlohmann::json& json, const STRUCT&) { json = nlohmann::json::object(); } \
  inline void from_json(const nlohmann::json&, STRUCT&) {}

namespace lockstep::protocol {

template <typename Variant>
nlohmann::json encode_variant(const Variant& message) {
  return std::visit(
      [](const auto& m) {
        nlohmann::json header = m;
        header["kind"] = kind_of(&m);
        return header;
      },
      message);
}

template <typename Variant>
Variant decode_variant(const nlohmann::json& header) {
  if (!header.is_object() || !header.contains("kind") || !header["kind"].is_string())
    throw ChannelError("a message without a kind arrived: " + header.dump().substr(0, 80));
  const auto kind = header["kind"].get<std::string_view>();
  Variant message;
  bool known = false;
  try {
    known = [&]<typename... Message>(std::variant<Message...>*) {
      return ((kind == kind_of(static_cast<const Message*>(nullptr)) && (message = header.get<Message>(), true)) ||
              ...);
    }(&message);
  } catch (const nlohmann::json::exception& error) {
    throw ChannelError("a message of kind '" + std::string(kind) + "' has a damaged field: " + error.what());
  }
  if (!known) throw ChannelError("this version does not know messages of kind '" + std::string(kind) + "'");
  return message;
}

/// Reads a part of a message. The message arrives, whatever the part is: where that can't be read, its first alternative
/// has the reason.
template <typename Variant>
Variant decode_part(const nlohmann::json& part) {
  try {
    return decode_variant<Variant>(part);
  } catch (const ChannelError& error) {
    return std::variant_alternative_t<0, Variant>{error.what()};
  }
}

}  // namespace lockstep::protocol
