// Describes names, expressions and magics, for `EXPR?` and `EXPR??` of a cell, Shift-Tab and tooltips of a front end.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::shell {

class SessionCore;

struct Description {
  bool found = false;
  std::string text;  // for people: a table of type, declaration, comment, place; the help of a magic
  nlohmann::json data;  // the same: expression, type, declaration, comment, cell, where, source
};

/// Describes `expression`, and `with_source` the text of its definition, where a cell or a header has it. A magic is
/// named with its percent sign. Nothing runs. Starts the session for anything but a magic.
Description describe(SessionCore& session, const std::string& expression, bool with_source = false);

/// Describes what stands at byte `offset` of a cell: the name with its members and scopes, the magic, or the
/// function around the arguments there.
Description describe_at(SessionCore& session, const std::string& text, int64_t offset, bool with_source = false);

}  // namespace lockstep::shell
