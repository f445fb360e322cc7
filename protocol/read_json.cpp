#include "protocol/read_json.h"

namespace lockstep::protocol {

bool is_nested_too_deeply(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char each = text[i];
    if (in_string) {
      if (each == '\\') ++i;
      if (each == '"') in_string = false;
    } else if (each == '"') {
      in_string = true;
    } else if (each == '[' || each == '{') {
      if (++depth > kDeepestJson) return true;
    } else if ((each == ']' || each == '}') && depth > 0) {
      --depth;
    }
  }
  return false;
}

nlohmann::json read_json(std::string_view text) {
  if (is_nested_too_deeply(text)) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string text_at(const nlohmann::json& object, const char* name, const std::string& absent) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : absent;
}

}  // namespace lockstep::protocol
