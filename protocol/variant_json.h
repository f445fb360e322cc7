// A std::variant of message structs as JSON: {"kind": NAME, fields...}. The order of names is the order of
// alternatives.
#pragma once
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <variant>

#include "protocol/error.h"

namespace lockstep::protocol {

template <typename Variant>
using KindNames = std::array<std::string_view, std::variant_size_v<Variant>>;

template <typename Variant>
nlohmann::json encode_variant(const Variant& message, const KindNames<Variant>& names) {
  nlohmann::json header = std::visit([](const auto& m) { return nlohmann::json(m); }, message);
  if (header.is_null()) header = nlohmann::json::object();
  header["kind"] = names[message.index()];
  return header;
}

template <typename Variant>
Variant decode_variant(const nlohmann::json& header, const KindNames<Variant>& names) {
  if (!header.is_object() || !header.contains("kind") || !header["kind"].is_string())
    throw ChannelError("a message without a kind arrived: " + header.dump().substr(0, 80));
  const auto kind = header["kind"].get<std::string_view>();
  Variant message;
  bool known = false;
  try {
    known = [&]<size_t... I>(std::index_sequence<I...>) {
      return ((kind == names[I] ? (message = header.get<std::variant_alternative_t<I, Variant>>(), true) : false) ||
              ...);
    }(std::make_index_sequence<std::variant_size_v<Variant>>());
  } catch (const nlohmann::json::exception& error) {
    throw ChannelError("a message of kind '" + std::string(kind) + "' has a damaged field: " + error.what());
  }
  if (!known) throw ChannelError("this version does not know messages of kind '" + std::string(kind) + "'");
  return message;
}

}  // namespace lockstep::protocol
