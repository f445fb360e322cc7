#include "shell/magics/inspectors/object_list.h"

#include <array>
#include <string_view>

namespace lockstep::shell {
namespace {

/// Whether it is surely none of what inspectors look for; other types are looked at when the code is compiled.
bool is_plain(std::string_view type) {
  constexpr std::array<std::string_view, 14> kPlain = {"int",   "long",       "unsigned",    "short",      "bool",
                                                       "float", "double",     "char",        "int64_t",    "size_t",
                                                       "auto",  "const char", "std::string", "std::chrono"};
  for (const std::string_view plain : kPlain)
    if (type == plain || type.starts_with(std::string(plain) + " ") || type == "const " + std::string(plain))
      return true;
  return type.starts_with("std::chrono") || type.find("(lambda") != std::string_view::npos ||
         type.find("(unnamed") != std::string_view::npos || type.find('[') != std::string_view::npos;
}

}  // namespace

std::vector<std::string> object_names(SessionCore& session, const RankSet& ranks) {
  std::vector<std::string> found;
  const auto response = session.ask(protocol::ListNames{});
  const auto* names = std::get_if<protocol::Names>(&response);
  if (!names) return found;
  for (const protocol::Name& name : names->names)
    if (name.kind == "variable" && (ranks - name.ranks).empty() && !is_plain(name.type)) found.push_back(name.name);
  return found;
}

std::string object_list(SessionCore& session, const RankSet& ranks, const std::string& type) {
  std::string code = type + "()";
  for (const std::string& name : object_names(session, ranks)) code += ".add(\"" + name + "\", " + name + ")";
  return code;
}

}  // namespace lockstep::shell
