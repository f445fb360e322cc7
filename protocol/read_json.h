// Reads JSON that another program or another person may have written. nlohmann::json copies and writes values by
// recursion: one that is nested ten thousand levels deep would end the program that only hands it on.
#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep::protocol {

/// Nothing of ours is nested deeper, and no notebook: outputs of plots have some 20 levels.
inline constexpr size_t kDeepestJson = 500;

/// Whether brackets of the JSON in `text` are nested deeper than that.
bool is_nested_too_deeply(std::string_view text);

/// Returns a discarded value for text that is no JSON, or is nested too deeply.
nlohmann::json read_json(std::string_view text);

/// Returns a text in an object; `absent` where `object` is none, or has none of that name.
std::string text_at(const nlohmann::json& object, const char* name, const std::string& absent = "");

}  // namespace lockstep::protocol
