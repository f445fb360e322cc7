// Reads contents of requests without trust, and makes contents of replies that many requests share.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::shell::jupyter {

/// Returns a field of a request; `absent` where it is missing or of another kind.
inline bool flag_of(const nlohmann::json& content, const char* name, bool absent) {
  const auto found = content.find(name);
  return found != content.end() && found->is_boolean() ? found->get<bool>() : absent;
}
inline int64_t number_of(const nlohmann::json& content, const char* name, int64_t absent) {
  const auto found = content.find(name);
  return found != content.end() && found->is_number_integer() ? found->get<int64_t>() : absent;
}

inline nlohmann::json error_reply(const std::string& name, const std::string& value,
                                  const std::vector<std::string>& traceback = {}) {
  return {{"status", "error"}, {"ename", name}, {"evalue", value}, {"traceback", traceback}};
}

}  // namespace lockstep::shell::jupyter
