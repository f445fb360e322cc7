// Reads a struct (json_fields.h) from JSON that another program or another person may have written.
#pragma once
#include <optional>
#include <string_view>

#include "protocol/read_json.h"

namespace lockstep::protocol {

/// Returns nothing for text that is no JSON of a Struct.
template <typename Struct>
std::optional<Struct> read_struct(std::string_view text) {
  try {
    if (const nlohmann::json json = read_json(text); json.is_object()) return json.get<Struct>();
  } catch (const nlohmann::json::exception&) {  // a field is of another type
  }
  return std::nullopt;
}

}  // namespace lockstep::protocol
