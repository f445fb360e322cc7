// Takes a cell's text apart: magics of the complete cell, line magics, and the C++ between them. Every piece of C++ is
// as long as the whole cell, with blank lines where the rest stood, so that line numbers hold.
//
// Cell magics (%%name) come first, after blank lines and comments; several may follow one another. A line magic (%name)
// is recognised where a statement may begin, and splits the C++ there. Both may stand after `// ` where the name is a
// known magic. `%%rank[0]` is `%%rank [0]`. A `//` comment after a magic is no argument of it.
// `%name?` is `%help name`, and a line `expression?` the line magic `?` with the expression as its arguments;
// `expression??` is `??`, `?expression` the same as `expression?`, and `?` or `help` alone `%help`.
// A line `!command` is the line magic `!`, unless it begins with the negation of a name that C++ knows.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shell/scripts/magic.h"

namespace lockstep::shell {

struct MagicUse {
  std::string name;
  std::string arguments;  // trimmed
  int line = 1;
};

struct CellPart {
  bool is_code = false;
  std::string code;  // of C++
  MagicUse magic;  // of a line magic
};

struct ParsedCell {
  std::vector<MagicUse> cell_magics;
  std::vector<CellPart> parts;  // in order; without pieces of C++ that are blanks and comments alone
  std::string body;  // what follows the cell magics, on its lines
  bool has_code() const;
};

struct FoundMagic {
  bool cell_magic = false;
  MagicUse use;
};

/// Holds what the parts of a cell depend on in its language. Lines come in order.
struct CellGrammar {
  std::function<bool(size_t line)> may_begin;  // a statement, with the line at this offset
  std::function<void(size_t end)> skip_magic;  // that ends there
  std::function<bool(std::string_view lines)> has_code;
  std::function<std::optional<FoundMagic>(std::string_view line, int number)> find;  // where a statement may begin
};

/// A cell of any language. Throws as parse_cell() does.
ParsedCell take_apart(std::string_view text, const MagicRegistry& registry, const CellGrammar& grammar);

/// The name of a line's magic, with its percent signs; empty where it has none.
std::string_view magic_of(std::string_view line);

/// The arguments of %rank: the SPEC at the front, which ends at the first blank outside brackets, and the code behind it.
std::pair<std::string, std::string> split_spec(const std::string& arguments);

/// Throws UsageError with the line: unknown magics (with the nearest name), %% in the middle of a cell, zero bytes.
/// `is_name`: whether a cell has defined this name; asked only where a line begins with `!` or is `help`.
ParsedCell parse_cell(std::string_view text, const MagicRegistry& registry,
                      const std::function<bool(const std::string&)>& is_name = nullptr);

}  // namespace lockstep::shell
