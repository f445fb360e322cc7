#include "shell/object_list.h"

#include <array>
#include <string_view>

namespace lockstep::shell {
namespace {

/// Types that are surely none of what inspectors look for; the others are looked at when the code is compiled.
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

std::string object_list(Session::Impl& session, const RankSet& ranks, const std::string& type) {
  std::string code = type + "()";
  const auto response = session.ask(protocol::ListNames{});
  const auto* names = std::get_if<protocol::Names>(&response);
  if (!names) return code;
  for (const protocol::Name& name : names->names)
    if (name.kind == "variable" && (ranks - name.ranks).empty() && !is_plain(name.type))
      code += ".add(\"" + name.name + "\", " + name.name + ")";
  return code;
}

std::string rank_set_code(const RankSet& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return "lockstep::RankSet{" + text + "}";
}

}  // namespace lockstep::shell
