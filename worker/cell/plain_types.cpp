#include "worker/cell/plain_types.h"

#include <cctype>
#include <string_view>

namespace lockstep::worker {
namespace {

/// Takes namespaces out that begin with `version`, behind `outer`: "nlohmann::json_abi_v3_11_2::" becomes "nlohmann::".
void drop_version(std::string& name, std::string_view outer, std::string_view version) {
  for (size_t at = name.find(outer); at != std::string::npos; at = name.find(outer, at + outer.size())) {
    const size_t begin = at + outer.size();
    if (name.compare(begin, version.size(), version) != 0) continue;
    const size_t end = name.find("::", begin);
    if (end != std::string::npos) name.erase(begin, end + 2 - begin);
  }
}

/// Returns the place behind the `>` that belongs to the `<` at `at`; npos where there is none.
size_t behind_arguments(std::string_view name, size_t at) {
  int depth = 0;
  for (size_t i = at; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>' && (i == 0 || name[i - 1] != '-') && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

/// Makes `plain` of `type<first, …>`, where its arguments begin with `first`.
void replace_template(std::string& name, std::string_view type, std::string_view first, std::string_view plain) {
  const std::string begin = std::string(type) + "<" + std::string(first);
  for (size_t at = name.find(begin); at != std::string::npos; at = name.find(begin, at + plain.size())) {
    const size_t end = behind_arguments(name, at + type.size());
    if (end == std::string::npos) return;
    name.replace(at, end - at, plain);
  }
}

}  // namespace

std::string plain_types(std::string name) {
  drop_version(name, "nlohmann::", "json_abi");
  drop_version(name, "std::", "__cxx11");
  replace_template(name, "nlohmann::basic_json", "nlohmann::ordered_map,", "nlohmann::ordered_json");
  replace_template(name, "nlohmann::basic_json", "", "nlohmann::json");
  replace_template(name, "std::basic_string", "char,", "std::string");
  replace_template(name, "std::basic_string_view", "char,", "std::string_view");
  return name;
}

}  // namespace lockstep::worker
